"""Rows of a job's parts as the bytes of a table's rows."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from twoshift.answers.keys import KeyKind
from twoshift.answers.layout import TEXT, ColumnLayout
from twoshift.errors import InvalidInput

__all__ = ["encoded_rows", "key_kind", "layouts_of"]

_length = struct.Struct("<I")
_Bytes = Callable[[int], bytes]  # of a row


def key_kind(name: str, kind: pa.DataType, field: str = "key") -> KeyKind:
    """Of a column; raises InvalidInput where its values cannot be keys."""
    if _is_text(kind):
        return KeyKind.TEXT
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return KeyKind.INTEGER
    raise InvalidInput(field, name, f"a column of integers or texts; this column has the type {kind}")


def layouts_of(schema: pa.Schema, names: Sequence[str], field: str = "precomputed") -> tuple[ColumnLayout, ...]:
    """Of these columns; raises InvalidInput for one that a table cannot hold."""
    return tuple(_layout(schema.field(name), field) for name in names)


def encoded_rows(
    batch: pa.RecordBatch, key: str, columns: Sequence[ColumnLayout], left_out: Counter[str]
) -> Iterator[tuple[bytes, bytes]]:
    """Key and values of each row that has all of them; the others are counted by why."""
    there = np.ones(len(batch), bool)
    for column in columns:
        there &= batch.column(column.name).is_valid().to_numpy(zero_copy_only=False)
    keyed = batch.column(key).is_valid().to_numpy(zero_copy_only=False)
    left_out["without a result"] += int((~there).sum())
    left_out["without a key"] += int((there & ~keyed).sum())
    kept = there & keyed
    if not kept.all():
        batch = batch.filter(pa.array(kept))
    keys = _keys(batch.column(key))
    values = [_bytes_of(batch.column(column.name), column) for column in columns]
    if len(values) == 1:
        (one,) = values
        return ((each, one(row)) for row, each in enumerate(keys))
    return ((each, b"".join([of(row) for of in values])) for row, each in enumerate(keys))


def _keys(column: pa.Array) -> list[bytes]:
    if _is_text(column.type):
        return column.cast(pa.large_binary()).to_pylist()
    data = column.cast(pa.int64()).to_numpy().astype("<i8", copy=False).tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def _bytes_of(column: pa.Array, layout: ColumnLayout) -> _Bytes:
    if layout.dtype == TEXT:
        texts = column.cast(pa.large_binary()).to_pylist()
        return lambda row: _length.pack(len(texts[row])) + texts[row]
    flat = column if layout.size is None else column.flatten()
    data = flat.to_numpy(zero_copy_only=False).astype(layout.dtype, copy=False).tobytes()
    width = layout.width_bytes
    return lambda row: data[row * width : (row + 1) * width]


def _layout(field: pa.Field, asked: str) -> ColumnLayout:
    kind: Any = field.type
    if _is_text(kind):
        return ColumnLayout(field.name, TEXT)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    value = kind if size is None else kind.value_type
    if not (pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_boolean(value)):
        accepted = "outputs that are numbers, texts or vectors: a table of answers cannot hold other values"
        raise InvalidInput(asked, f"{field.name} ({kind})", accepted)
    return ColumnLayout(field.name, np.dtype(value.to_pandas_dtype()).newbyteorder("<").str, size)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
