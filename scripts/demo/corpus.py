"""The paragraphs of this repository's own documentation: texts that are always at hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["paragraphs", "write_corpus"]

ROOT = Path(__file__).resolve().parents[2]
_SHORTEST, _LONGEST = 80, 200  # characters: a heading is no document
_PROSE = 0.93  # of them letters and spaces: tables and code are not, either


def paragraphs() -> list[str]:
    """In the order of the files."""
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    found = (" ".join(each.split()) for path in files for each in path.read_text(encoding="utf-8").split("\n\n"))
    return [each[:_LONGEST] for each in found if len(each) >= _SHORTEST and _is_prose(each)]


def _is_prose(text: str) -> bool:
    return sum(each.isalpha() or each.isspace() for each in text) >= _PROSE * len(text)


def write_corpus(path: Path, rows: int) -> list[str]:
    """So many documents, numbered so that no two are the same; the texts in the order of their ids."""
    found = paragraphs()
    texts = [f"{number}. {found[number % len(found)]}" for number in range(rows)]
    pq.write_table(pa.table({"id": range(rows), "body": texts}), path, row_group_size=500)
    return texts
