"""Kinds of values that settings of a job have, as people write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.values import choice, mapping, names, text, whole

__all__ = [
    "AMOUNTS", "AUTO", "COLUMN", "COLUMNS", "FOLDER", "INPUT_FORMAT", "INPUT_FORMATS", "LOCATION", "NOTICE_PLACE",
    "OUTPUT_FORMAT", "OUTPUT_FORMATS", "SQL", "TYPES", "WORKERS", "ZONE", "is_location",
]  # fmt: skip

INPUT_FORMATS = ("parquet", "jsonl", "csv", "tsv", "arrow")
OUTPUT_FORMATS = ("parquet", "jsonl")


def _is_each_once(values: tuple[str, ...]) -> bool:
    return len(set(values)) == len(values)


def _is_notice_place(place: str) -> bool:
    return bool(place) and ("://" not in place or place.startswith(("http://", "https://")))


def is_location(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


def _read_workers(raw: str, flag: str) -> Any:
    try:
        return AUTO if raw.strip() == AUTO else _NUMBER.parse(raw, flag)
    except InvalidInput as error:
        raise InvalidInput(flag, raw, WORKERS.plain) from error


AUTO = "auto"
_NUMBER = whole(most=1024)
WORKERS = replace(
    _NUMBER,
    parse=_read_workers,
    plain=f"{_NUMBER.plain}, or {AUTO}",
    fits=lambda value: value == AUTO or (not isinstance(value, str) and _NUMBER.fits(value)),
)
COLUMN = text("COLUMN")
FOLDER = text("FOLDER")
SQL, ZONE = text("SQL"), text("ZONE")
NOTICE_PLACE = text("WHERE", "aws, gcp, an http:// or https:// address, or a file", _is_notice_place)
LOCATION = text(plain="the name of a file or folder", fits=is_location)
INPUT_FORMAT = replace(choice(INPUT_FORMATS), fits=lambda _: True)  # csv.gz and the like, too: by whoever reads them
OUTPUT_FORMAT = replace(choice(OUTPUT_FORMATS), fits=lambda _: True)  # a batch has its own
COLUMNS = names("each column once", _is_each_once)
TYPES = mapping("columns with types, such as amount=float,zip=string", "column")
AMOUNTS = mapping("names with amounts, such as a=1,b=0.5", "name", float)
