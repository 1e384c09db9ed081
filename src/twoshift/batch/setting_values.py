"""Kinds of values that settings of a job have, as people write them."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.values import choice, mapping, names, text, whole

__all__ = [
    "AMOUNTS",
    "AUTO",
    "CODECS",
    "COLUMN",
    "COLUMNS",
    "COMPRESSION",
    "FOLDER",
    "INPUT_FORMAT",
    "INPUT_FORMATS",
    "LOCATION",
    "NOTICE_PLACE",
    "OUTPUT_FORMAT",
    "OUTPUT_FORMATS",
    "SQL",
    "STORE",
    "TABLE",
    "TYPES",
    "WORKERS",
    "ZONE",
    "Mark",
    "codec_of",
    "is_location",
]  # fmt: skip

INPUT_FORMATS = ("parquet", "jsonl", "csv", "tsv", "arrow")
OUTPUT_FORMATS = ("parquet", "jsonl")

CODECS = {"zstd": (1, 22), "gzip": (1, 9), "snappy": None, "none": None}  # with their levels


class Mark(enum.Enum):
    """What more is to be known of a setting. Those without the first two may change from one run to the next."""

    ROWS = enum.auto()  # decides what the rows of the output are
    SHARDS = enum.auto()  # decides which rows are in which part
    HERE = enum.auto()  # a server's jobs run on its own replicas: it is not theirs to say
    SERVER = enum.auto()  # only a job on a server has it
    BATCH = enum.auto()  # set by the server, for a file of requests


def _is_each_once(values: tuple[str, ...]) -> bool:
    return len(set(values)) == len(values)


def _is_notice_place(place: str) -> bool:
    return bool(place) and ("://" not in place or place.startswith(("http://", "https://")))


def is_location(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


def codec_of(compression: str) -> tuple[str, int | None]:
    """A codec and its level; raises ValueError."""
    name, colon, level = compression.partition(":")
    levels = CODECS.get(name)
    if name not in CODECS or (colon and (levels is None or not levels[0] <= int(level) <= levels[1])):
        raise ValueError(compression)
    return name, int(level) if colon else None


def _is_compression(value: str) -> bool:
    try:
        codec_of(value)
    except ValueError:
        return False
    return True


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
COMPRESSION = text(
    "NAME", "zstd, snappy, gzip or none; zstd:1 to zstd:22 and gzip:1 to gzip:9 set the level", _is_compression
)
STORE = text("URL")
TABLE = text("NAME", "a name, or schema.name in PostgreSQL", lambda name: bool(name.strip(". ")) and "\0" not in name)
LOCATION = text(plain="the name of a file or folder", fits=is_location)
INPUT_FORMAT = replace(choice(INPUT_FORMATS), fits=lambda _: True)  # csv.gz and the like, too: by whoever reads them
OUTPUT_FORMAT = replace(choice(OUTPUT_FORMATS), fits=lambda _: True)  # a batch has its own
COLUMNS = names("a list with each column once", _is_each_once)
TYPES = mapping("columns with types, such as amount=float,zip=string", "column")
AMOUNTS = mapping("resource names with amounts, such as a=1,b=0.5", "name", float)
