"""One schema for the columns of all files: of those that are kept, and of those that a model is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from twoshift.batch.inputs.types import TYPES, kept_type, model_type, type_name
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["kept_schema", "model_types", "unified"]

_OPENED_AT_ONCE = 8
_MOST_TEXT_FILES, _MOST_FILES = 32, 1000  # evenly spread; where there are more, `conform` tells what did not fit
_SAMPLE_ROWS, _SAMPLE_BYTES = 20_000, 1 << 20
_RANGE_BYTES = 256 << 10

BlobsFor = Callable[[str], Blobs]
_Guess = Callable[[pa.Array], pa.DataType]  # the type of a column of CSV, by its values


def kept_schema(
    files: Sequence[InputFile],
    blobs_for: BlobsFor,
    columns: Sequence[str] | None,
    stated: Mapping[str, str] | None = None,
) -> pa.Schema:
    """The columns (None: all) with a type that takes what the files hold; raises InvalidInput where no file has one.

    Parquet and Arrow files say their types; of text files a sample is read. `stated` are the user's own.
    """
    if columns is not None and not columns:
        return pa.schema([])
    types = _unified_types(files, blobs_for, kept_type)
    for name in columns or ():
        if types and name not in types:
            raise missing_column(name, list(types), _all_of(files))
    types |= {name: TYPES[kind] for name, kind in (stated or {}).items()}
    names = list(types) if columns is None else list(dict.fromkeys(columns))
    return pa.schema([pa.field(name, _known(types.get(name, pa.null()))) for name in names])


def model_types(
    files: Sequence[InputFile], blobs_for: BlobsFor, columns: Sequence[str] | None, stated: Mapping[str, str]
) -> dict[str, str]:
    """What columns (None: all) become for a model, by name: as stated, and of CSV as a sample has them.

    Raises InvalidInput where a type is stated for a column that no file has.
    """
    of_csv = any(file.format in ("csv", "tsv") for file in files)
    types = _unified_types(files, blobs_for, model_type) if of_csv or stated else {}
    for name in stated:
        if types and name not in types:
            raise InvalidInput("types", name, missing_column(name, list(types), _all_of(files)).accepted)
    found = {name: type_name(kind) for name, kind in types.items()} if of_csv else {}
    found |= stated
    return {name: kind for name, kind in found.items() if columns is None or name in columns}


def _unified_types(files: Sequence[InputFile], blobs_for: BlobsFor, guess: _Guess) -> dict[str, pa.DataType]:
    with ThreadPoolExecutor(_OPENED_AT_ONCE) as opening:
        found = opening.map(lambda file: _types(file, blobs_for(file.location), guess), _chosen(files))
        types: dict[str, pa.DataType] = {}
        for one in found:
            for name, kind in one.items():
                types[name] = unified(types.get(name, pa.null()), kind)
    return types


def _all_of(files: Sequence[InputFile]) -> str:
    return files[0].location if len(files) == 1 else "the input"


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


def _types(file: InputFile, blobs: Blobs, guess: _Guess) -> dict[str, pa.DataType]:
    if file.format in ("parquet", "arrow"):
        schema = parquet_schema(file, blobs) if file.format == "parquet" else arrow_schema(file, blobs)
        return {field.name: _plain(field.type) for field in schema if field.name != READ_ERROR}
    columns: dict[str, list[pa.DataType]] = {}
    for piece in _samples(file):
        for batch in islice(read(piece, file, blobs, None, _SAMPLE_ROWS, _SAMPLE_BYTES), 1):
            for name in batch.schema.names[:-1]:  # the last is READ_ERROR
                column = batch.column(name)
                columns.setdefault(name, []).append(column.type if file.format == "jsonl" else guess(column))
    return {name: reduce(unified, kinds) for name, kinds in columns.items()}


def _samples(file: InputFile) -> list[Piece]:
    """Where to look: lines of plain JSON also in the middle and at the end."""
    if file.format != "jsonl" or file.compression or file.size_bytes <= 3 * _RANGE_BYTES:
        return [file.head()]
    last = file.size_bytes - _RANGE_BYTES
    return [Piece(0, start, start + _RANGE_BYTES, None, _RANGE_BYTES) for start in (0, last // 2, last)]
