"""How the values of a row lie one after the other: numbers and vectors as in memory, texts with their length."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken

__all__ = ["TEXT", "ColumnLayout", "packed_values", "values_of"]

TEXT = "text"
_length = struct.Struct("<I")


class ColumnLayout(msgspec.Struct, frozen=True):
    """One output of the model."""

    name: str
    dtype: str  # numpy's, little-endian; or "text"
    size: int | None = None  # of a vector; None: one value a row

    @property
    def width_bytes(self) -> int:
        """Of a row, where all rows have the same."""
        return np.dtype(self.dtype).itemsize * (1 if self.size is None else self.size)


def values_of(columns: Sequence[ColumnLayout], data: bytes, at: int) -> dict[str, NDArray[np.generic]]:
    """A row's values by column, each in an array with one row; raises Broken where the bytes are not such a row."""
    found: dict[str, NDArray[np.generic]] = {}
    try:
        for column in columns:
            if column.dtype == TEXT:
                (size,) = _length.unpack_from(data, at)
                value = np.empty(1, object)
                value[0] = data[at + 4 : at + 4 + size].decode("utf-8", "surrogatepass")
                found[column.name], at = value, at + 4 + size
                continue
            array = np.frombuffer(data, column.dtype, 1 if column.size is None else column.size, at)
            found[column.name] = array if column.size is None else array.reshape(1, -1)
            at += array.nbytes
    except (ValueError, struct.error) as error:
        raise Broken(f"a precomputed row is damaged ({error}), so the table of answers must be built again") from error
    if at != len(data):
        raise Broken(
            f"a precomputed row is damaged ({len(data) - at:,} bytes too long), so the table of answers must be built "
            "again"
        )
    return found


def packed_values(row: Mapping[str, NDArray[np.generic]]) -> tuple[tuple[ColumnLayout, ...], bytes] | None:
    """The other way round; None where a value is none that a row can hold."""
    layouts, values = list[ColumnLayout](), list[bytes]()
    for name, array in row.items():
        if array.dtype.kind in "OU" and array.shape == (1,) and isinstance(array[0], str):
            text = str(array[0]).encode("utf-8", "surrogatepass")
            layouts.append(ColumnLayout(name, TEXT))
            values.append(_length.pack(len(text)) + text)
        elif array.dtype.kind in "biuf" and array.ndim <= 2 and len(array) == 1 and _is_finite(array):
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            layouts.append(ColumnLayout(name, little.dtype.str, array.shape[1] if array.ndim == 2 else None))
            values.append(little.tobytes())
        else:
            return None
    return tuple(layouts), b"".join(values)


def _is_finite(array: NDArray[np.generic]) -> bool:
    """A model that fails for a moment must not be remembered for it: JSON has no such number."""
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
