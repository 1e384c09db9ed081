"""Measured calls from a CSV file: columns batch, ms or rows, tokens, longest, ms."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping

from twoshift.cli.files import read_text
from twoshift.errors import InvalidInput, Malformed
from twoshift.policy.cost import Sample

__all__ = ["read_samples"]

_COLUMNS = "a header with the columns `batch, ms` or `rows, tokens, longest, ms`"


def read_samples(path: str) -> list[Sample]:
    """Every sample of the file (`-`: standard input); raises InvalidInput that names the line."""
    reader = csv.DictReader(
        io.StringIO(read_text(path, "SAMPLES", "a CSV file"), newline=""), strict=True, skipinitialspace=True
    )
    try:
        header = [name.strip().lower() for name in reader.fieldnames or ()]
        tokens = _has_tokens(path, header)
        reader.fieldnames = header
        samples = [_sample(path, reader.line_num, row, tokens) for row in reader]
    except csv.Error as error:
        raise Malformed(f"{path} line {reader.line_num}", f"comma-separated values ({error})") from None
    if not samples:
        raise Malformed(path, "at least two measured calls below the header; this file has none")
    return samples


def _has_tokens(path: str, header: list[str]) -> bool:
    names = set(header)
    if {"rows", "tokens", "longest", "ms"} <= names:
        return True
    if {"batch", "ms"} <= names:
        return False
    raise Malformed(path, f"{_COLUMNS}; the header of this file is: {', '.join(header)}")


def _sample(path: str, line: int, row: Mapping[str | None, str | None], tokens: bool) -> Sample:
    def whole(column: str, least: int = 1) -> int:
        value = number(column)
        if value != math.floor(value) or not least <= value <= 1e12:
            raise InvalidInput(f"{path} line {line}, {column}", row.get(column), f"a whole number of at least {least}")
        return int(value)

    def number(column: str) -> float:
        text = row.get(column)
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and 0 < value <= 1e12):
            raise InvalidInput(f"{path} line {line}, {column}", text, "a number above 0")
        return value

    if not tokens:
        batch = whole("batch")
        return Sample(batch, batch, 1, number("ms") / 1e3)
    rows = whole("rows")
    total = whole("tokens", rows)
    longest = whole("longest", math.ceil(total / rows))
    if longest > total:
        raise InvalidInput(
            f"{path} line {line}, longest", longest, f"a number of at most {total}, the tokens of the call"
        )
    return Sample(rows, total, longest, number("ms") / 1e3)
