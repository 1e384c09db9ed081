"""The paragraphs of this repository's own documentation as JSON lines: a corpus that is always at hand."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    number = 0
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            body = " ".join(paragraph.split())
            if body:
                print(json.dumps({"id": number, "file": str(path.relative_to(ROOT)), "body": body}))
                number += 1


if __name__ == "__main__":
    main()
