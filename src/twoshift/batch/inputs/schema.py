"""One schema for the kept columns of all files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import islice

import pyarrow as pa

from twoshift.batch.inputs.arrow_ipc import arrow_schema
from twoshift.batch.inputs.columns import missing_column
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.parquet import parquet_schema
from twoshift.batch.inputs.piece import READ_ERROR, Piece
from twoshift.batch.inputs.read import read
from twoshift.ports import Blobs

__all__ = ["kept_schema", "unified"]

_OPENED_AT_ONCE = 8
_MOST_TEXT_FILES, _MOST_FILES = 32, 1000  # evenly spread; where there are more, `conform` tells what did not fit
_JSON_ROWS, _CSV_ROWS, _SAMPLE_BYTES = 20_000, 2000, 1 << 20
_RANGE_BYTES = 256 << 10

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")  # 007 is no number: it would come back as 7
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?(?:[eE][-+]?\d{1,2})?")


def kept_schema(
    files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], columns: Sequence[str] | None
) -> pa.Schema:
    """The columns (None: all) with a type that takes what the files hold; raises InvalidInput where no file has one.

    Parquet and Arrow files say their types; of text files a sample is read.
    """
    if columns is not None and not columns:
        return pa.schema([])

    def looked(file: InputFile) -> dict[str, pa.DataType]:
        return _types(file, blobs_for(file.location))

    with ThreadPoolExecutor(_OPENED_AT_ONCE) as opening:
        found = list(opening.map(looked, _chosen(files)))
    types: dict[str, pa.DataType] = {}
    for one in found:
        for name, kind in one.items():
            types[name] = unified(types.get(name, pa.null()), kind)
    for name in columns or ():
        if types and name not in types:
            raise missing_column(name, list(types), files[0].location if len(files) == 1 else "the input")
    names = list(types) if columns is None else list(dict.fromkeys(columns))
    return pa.schema([pa.field(name, _known(types.get(name, pa.null()))) for name in names])


def unified(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The type that holds what both hold: the same, the wider number, and else a string."""
    first, second = _plain(first), _plain(second)
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    pair = (first, second)
    if all(map(pa.types.is_integer, pair)) and pa.uint64() not in pair:
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in pair):
        return pa.float64() if any(map(pa.types.is_floating, pair)) else pa.string()
    return pa.large_binary() if all(map(_is_bytes, pair)) else pa.string()


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _known(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind  # nothing but nulls was seen; a string takes what comes


def _chosen(files: Sequence[InputFile]) -> list[InputFile]:
    """Files to look into: text costs more than a header does."""
    filled = [file for file in files if file.size_bytes]
    groups = ([file for file in filled if file.is_text == text] for text in (True, False))
    text, others = (_spread(group, most) for group, most in zip(groups, (_MOST_TEXT_FILES, _MOST_FILES), strict=True))
    return [*text, *others]


def _spread(files: list[InputFile], most: int) -> list[InputFile]:
    if len(files) <= most:
        return files
    return [files[k * (len(files) - 1) // (most - 1)] for k in range(most)]


def _types(file: InputFile, blobs: Blobs) -> dict[str, pa.DataType]:
    if file.format in ("parquet", "arrow"):
        schema = parquet_schema(file, blobs) if file.format == "parquet" else arrow_schema(file, blobs)
        return {field.name: _plain(field.type) for field in schema if field.name != READ_ERROR}
    columns: dict[str, list[pa.DataType]] = {}
    guess, rows = (_type_of, _JSON_ROWS) if file.format == "jsonl" else (_type_of_texts, _CSV_ROWS)
    for piece in _samples(file):
        for batch in islice(read(piece, file, blobs, None, rows, _SAMPLE_BYTES), 1):
            for name in batch.schema.names[:-1]:  # the last is READ_ERROR
                columns.setdefault(name, []).append(guess(batch.column(name)))
    return {name: reduce(unified, kinds) for name, kinds in columns.items()}


def _samples(file: InputFile) -> list[Piece]:
    """Where to look: lines of plain JSON also in the middle and at the end."""
    if file.format != "jsonl" or file.compression or file.size_bytes <= 3 * _RANGE_BYTES:
        return [file.head()]
    last = file.size_bytes - _RANGE_BYTES
    return [Piece(0, start, start + _RANGE_BYTES, None, _RANGE_BYTES) for start in (0, last // 2, last)]


def _type_of(column: pa.Array) -> pa.DataType:
    return column.type


def _type_of_texts(column: pa.Array) -> pa.DataType:
    """What a column of CSV holds, by its values; only what comes back as it was is a number."""
    values = [value for value in column.to_pylist() if value is not None]
    if not values:
        return pa.null()
    if all(map(_INTEGER.fullmatch, values)):
        return pa.int64()
    if all(map(_NUMBER.fullmatch, values)):
        return pa.float64()
    return pa.bool_() if {"true", "false"} >= set(values) else pa.string()
