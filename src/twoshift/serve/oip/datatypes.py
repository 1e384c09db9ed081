"""The protocol's datatypes and numpy's."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import BrokenModel
from twoshift.types import Tensor

__all__ = ["BF16", "BYTES", "DTYPES", "KINDS", "datatype_of", "wire"]

BYTES, BF16 = "BYTES", "BF16"
_NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8",
    "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip

DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(f"<{code}") for name, code in _NUMPY.items()}
_DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
_BY_NAME = {dtype.name: name for name, dtype in DTYPES.items()}


def datatype_of(tensor: Tensor) -> str:
    """What the protocol calls it."""
    return BYTES if tensor.dtype == "text" else _BY_NAME.get(tensor.dtype, "INVALID")


def wire(name: str, values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """A column's datatype, and the column as it lies on the wire; raises BrokenModel where the protocol has none."""
    datatype = _DATATYPES.get(values.dtype)
    if datatype is not None:
        return datatype, values
    if values.dtype.kind in "OSU":
        return BYTES, values
    datatype = _DATATYPES.get(values.dtype.newbyteorder("<"), "FP64" if values.dtype.kind == "f" else None)
    if datatype is None:
        raise BrokenModel(f"the model's output {name!r} has the type {values.dtype}; expected bools, numbers or texts")
    return datatype, values.astype(DTYPES[datatype])


def _kind_of(dtype: np.dtype[Any]) -> Any:
    """A JSON value that it holds, as msgspec checks it."""
    if dtype.kind == "b":
        return bool
    if dtype.kind == "f":
        return float if dtype.itemsize == 8 else _float_below(dtype)
    if dtype.itemsize == 8:
        return int  # numpy refuses what is too large: msgspec's bounds have 64 bits themselves
    limits = np.iinfo(dtype)
    return Annotated[int, msgspec.Meta(ge=int(limits.min), le=int(limits.max))]


def _float_below(dtype: np.dtype[Any]) -> Any:
    """One that does not round to infinity: less than half a step above the largest."""
    limits = np.finfo(dtype)
    infinite = math.ldexp(2.0 - 2.0 ** -(limits.nmant + 1), int(limits.maxexp) - 1)
    return Annotated[float, msgspec.Meta(gt=-infinite, lt=infinite)]


KINDS: dict[str, Any] = {datatype: _kind_of(dtype) for datatype, dtype in DTYPES.items()} | {BYTES: str}
