"""Rows as PostgreSQL's COPY reads them, in its binary format: vectors go as they are, not as digits."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from twoshift.batch.result_columns import is_vector
from twoshift.batch.stores.columns import kind_of_values

__all__ = ["COPY_BEGIN", "COPY_END", "copied_rows", "transfer_type"]

COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
COPY_END = struct.pack(">h", -1)
_NULL = struct.pack(">i", -1)
_OID = {"f4": 700, "f8": 701}  # of the elements of arrays


def transfer_type(kind: pa.DataType, target: str) -> str:
    """The type that a column is copied as, on its way to a column of the type `target`."""
    if is_vector(kind):
        if target.startswith(("vector", "halfvec")):
            return "vector"
        return "double precision[]" if kind.value_type == pa.float64() else "real[]"
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return "bigint"
    if pa.types.is_floating(kind):
        return "double precision"
    return {"bool": "boolean", "bytes": "bytea"}.get(kind_of_values(kind), "text")


def copied_rows(rows: pa.Table, types: Sequence[str]) -> bytes:
    """All rows; `types` are those of `transfer_type`."""
    columns = [_FIELDS[kind](column.combine_chunks()) for column, kind in zip(rows.columns, types, strict=True)]
    count = struct.pack(">h", len(columns))
    return b"".join(chain.from_iterable(zip([count] * rows.num_rows, *columns, strict=True)))


def _fixed(values: NDArray[Any], valid: NDArray[np.bool_], item: Any, size: int) -> list[bytes]:
    """Values of one length each, with that length before them."""
    records = np.zeros(len(values), [("size", ">i4"), ("value", item)])
    records["size"], records["value"] = size, values
    return _cut(records, valid)


def _cut(records: NDArray[Any], valid: NDArray[np.bool_]) -> list[bytes]:
    data, step = records.tobytes(), records.itemsize
    return [data[at * step : (at + 1) * step] if there else _NULL for at, there in enumerate(valid.tolist())]


def _valid(column: Any) -> NDArray[np.bool_]:
    return column.is_valid().to_numpy(zero_copy_only=False)


def _numbers(item: str, cast: pa.DataType) -> Callable[[Any], list[bytes]]:
    def encode(column: Any) -> list[bytes]:
        values = column.cast(cast).fill_null(0).to_numpy(zero_copy_only=False)
        return _fixed(values, _valid(column), item, np.dtype(item).itemsize)

    return encode


def _booleans(column: Any) -> list[bytes]:
    return _fixed(column.fill_null(False).to_numpy(zero_copy_only=False), _valid(column), "u1", 1)


def _matrix(column: Any, item: str) -> NDArray[Any]:
    """A row for each value, zeros where there is none."""
    valid = _valid(column)
    values = np.zeros((len(column), column.type.list_size), item)
    values[valid] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)
    return values


def _vectors(column: Any) -> list[bytes]:
    """As pgvector sends and receives them."""
    size = column.type.list_size
    item = [("dimension", ">i2"), ("unused", ">i2"), ("values", ">f4", (size,))]
    records = np.zeros(len(column), [("size", ">i4"), *item])
    records["size"], records["dimension"] = 4 + 4 * size, size
    records["values"] = _matrix(column, "f4")
    return _cut(records, _valid(column))


def _arrays(item: str) -> Callable[[Any], list[bytes]]:
    def encode(column: Any) -> list[bytes]:
        size, width = column.type.list_size, np.dtype(item).itemsize
        head = [("dimensions", ">i4"), ("has_null", ">i4"), ("oid", ">i4"), ("length", ">i4"), ("lower", ">i4")]
        elements = ("elements", [("size", ">i4"), ("value", f">{item}")], (size,))
        records = np.zeros(len(column), [("size", ">i4"), *head, elements])
        records["size"], records["dimensions"], records["oid"] = 20 + size * (4 + width), 1, _OID[item]
        records["length"], records["lower"] = size, 1
        records["elements"]["size"] = width
        records["elements"]["value"] = _matrix(column, item)
        return _cut(records, _valid(column))

    return encode


def _texts(column: Any) -> list[bytes]:
    """PostgreSQL has no place for a NUL in a text."""
    if pa.types.is_nested(column.type):
        values = [None if each is None else msgspec.json.encode(each, enc_hook=str) for each in column.to_pylist()]
        return _sized([each and each.replace(b"\\u0000", b"\\ufffd") for each in values])
    texts = column if pa.types.is_string(column.type) else pc.cast(column, pa.string())
    return _sized([None if each is None else each.replace("\0", "\ufffd").encode() for each in texts.to_pylist()])


def _bytes(column: Any) -> list[bytes]:
    return _sized(column.to_pylist())


def _sized(values: Sequence[bytes | None]) -> list[bytes]:
    return [_NULL if each is None else struct.pack(">i", len(each)) + each for each in values]


_FIELDS: dict[str, Callable[[Any], list[bytes]]] = {
    "bigint": _numbers(">i8", pa.int64()),
    "boolean": _booleans,
    "bytea": _bytes,
    "double precision": _numbers(">f8", pa.float64()),
    "double precision[]": _arrays("f8"),
    "real[]": _arrays("f4"),
    "text": _texts,
    "vector": _vectors,
}
