"""Arrays as the Open Inference Protocol's binary extension has them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twoshift.errors import Broken, InvalidInput

__all__ = ["HEADER", "read_tensors", "write_tensors"]

HEADER = "inference-header-content-length"
_LENGTH = struct.Struct("<I")
_CODES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8",
    "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip
_DTYPES = {name: np.dtype(f"<{code}") for name, code in _CODES.items()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def write_tensors(inputs: Mapping[str, ArrayLike], outputs: list[str] | None) -> tuple[bytes, int]:
    """A request's body, and how much of it is JSON."""
    written = [_written(name, np.asarray(values)) for name, values in inputs.items()]
    asked: dict[str, Any] = {"inputs": [head for head, _ in written]}
    if outputs is None:
        asked["parameters"] = {"binary_data_output": True}
    else:
        asked["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps(asked).encode()
    return b"".join([head, *(data for _, data in written)]), len(head)


def read_tensors(body: bytes, head_bytes: int | None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A reply's JSON, and its outputs by name."""
    head = json.loads(body[:head_bytes])
    at, found = head_bytes or len(body), dict[str, NDArray[Any]]()
    for each in head["outputs"]:
        size = each.get("parameters", {}).get("binary_data_size")
        if size is None:
            dtype: Any = _DTYPES.get(each["datatype"], object)
            values = np.array(each["data"], dtype)
        else:
            values = _values(each["datatype"], body[at : at + size])
            at += size
        found[each["name"]] = values.reshape(each["shape"])
    return head, found


def _written(name: str, values: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    if values.dtype.kind in "OSU":
        datatype, data = "BYTES", b"".join(map(_text, values.ravel()))
    else:
        datatype = _NAMES.get(values.dtype.newbyteorder("<"), "")
        if not datatype:
            raise InvalidInput(name, str(values.dtype), "an array of bools, numbers or texts")
        data = np.ascontiguousarray(values, _DTYPES[datatype]).tobytes()
    shape = {"name": name, "datatype": datatype, "shape": list(values.shape)}
    return {**shape, "parameters": {"binary_data_size": len(data)}}, data


def _text(value: object) -> bytes:
    data = value if isinstance(value, bytes) else str(value).encode()
    return _LENGTH.pack(len(data)) + data


def _values(datatype: str, data: bytes) -> NDArray[Any]:
    if datatype in _DTYPES:
        return np.frombuffer(data, _DTYPES[datatype])
    if datatype != "BYTES":
        raise Broken(f"the server returned a tensor of type {datatype}, which this client does not support")
    texts, at = list[str](), 0
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        texts.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return np.array(texts, object)
