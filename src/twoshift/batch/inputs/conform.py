"""Kept columns as the output has them."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["conform", "fitted"]

_MOST_SHOWN = 40  # characters of a value


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The schema's columns of a batch, and by row what did not fit and is null now; what is missing is null."""
    errors: dict[int, str] = {}
    columns: list[pa.Array] = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column, unfit = _cast(batch.column(field.name), field.type)
        columns.append(column)
        for row, value in unfit.items():
            told = f"column {field.name}: {value} is not a valid {field.type}"
            errors[row] = f"{errors[row]}; {told}" if row in errors else told
    if not columns:  # a batch without columns has no rows, but these do
        return batch.select([]), errors
    return pa.RecordBatch.from_arrays(columns, schema=schema), errors


def _cast(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == kind:
        return column, {}
    if pa.types.is_string(kind) and (pa.types.is_nested(column.type) or pa.types.is_float64(column.type)):
        return pa.array([_json(value) for value in column.to_pylist()], kind), {}
    return fitted(column, kind)


def fitted(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """The column cast, and by row the values that could not be and are null now."""
    whole = _tried(column, kind)
    if whole is not None:
        return whole, {}
    parts: list[pa.Array] = []
    unfit: dict[int, str] = {}
    _bisect(column, kind, 0, parts, unfit)
    return pa.concat_arrays(parts), unfit


def _bisect(column: pa.Array, kind: pa.DataType, at: int, parts: list[pa.Array], unfit: dict[int, str]) -> None:
    """Halve what cannot be cast until the values are found that cannot."""
    if len(column) == 1:
        unfit[at] = _shown(column[0])
        parts.append(pa.nulls(1, kind))
        return
    half = len(column) // 2
    for start, part in ((0, column.slice(0, half)), (half, column.slice(half))):
        done = _tried(part, kind)
        if done is None:
            _bisect(part, kind, at + start, parts, unfit)
        else:
            parts.append(done)


def _tried(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        done = column.cast(kind)
        return done if _says_the_same(done, column) else None
    except (pa.ArrowException, NotImplementedError):
        return None


def _says_the_same(done: pa.Array, given: pa.Array) -> bool:
    """Whether a text is told by the number that it became: 007 and 0x1F are not, and 1 is no truth."""
    is_exact = pa.types.is_integer(done.type) or pa.types.is_boolean(done.type)
    if not (is_exact and (pa.types.is_string(given.type) or pa.types.is_large_string(given.type))):
        return True
    return pc.call_function("utf8_lower", [given.cast(pa.string())]).equals(done.cast(pa.string()))


def _json(value: Any) -> str | None:
    """As JSON has it: the same text as where a JSON file mixes types in a column."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None if value is None else str(value)
    return msgspec.json.encode(value, enc_hook=str).decode()


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py())
    except (ValueError, KeyError):  # not UTF-8, beyond what Python has, or of an unknown time zone
        text = "a value"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
