"""Measured calls from a CSV file: columns batch, ms or rows, tokens, longest, ms."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from twoshift.errors import InvalidInput, TooLarge
from twoshift.policy.cost import Sample

__all__ = ["read_samples"]

_LIMIT_BYTES = 64 * 1024 * 1024
_COLUMNS = "a header with the columns batch, ms or rows, tokens, longest, ms"


def read_samples(path: str) -> list[Sample]:
    """Every sample of the file (`-`: standard input); raises InvalidInput that names the line."""
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True, skipinitialspace=True)
    try:
        header = [name.strip().lower() for name in reader.fieldnames or ()]
        tokens = _has_tokens(path, header)
        reader.fieldnames = header
        samples = [_sample(path, reader.line_num, row, tokens) for row in reader]
    except csv.Error as error:
        raise InvalidInput(f"{path} line {reader.line_num}", str(error), "comma-separated values") from None
    if not samples:
        raise InvalidInput(path, "no rows", "at least two samples below the header")
    return samples


def _text(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput("SAMPLES", path, f"a CSV file that can be read ({reason})") from None
    if len(data) > _LIMIT_BYTES:
        raise TooLarge("SAMPLES", path, f"a file of at most {_LIMIT_BYTES // 2**20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput("SAMPLES", path, f"a CSV file in UTF-8 (line {line} is not)") from None
    if "\0" in text:
        raise InvalidInput("SAMPLES", path, "a CSV file, and this is a binary one")
    if not text.strip():
        raise InvalidInput("SAMPLES", path, f"{_COLUMNS}, and this file is empty")
    return text


def _has_tokens(path: str, header: list[str]) -> bool:
    names = set(header)
    if {"rows", "tokens", "longest", "ms"} <= names:
        return True
    if {"batch", "ms"} <= names:
        return False
    raise InvalidInput(path, ", ".join(header), _COLUMNS)


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
        raise InvalidInput(f"{path} line {line}, longest", longest, f"at most the tokens of the call, {total}")
    return Sample(rows, total, longest, number("ms") / 1e3)
