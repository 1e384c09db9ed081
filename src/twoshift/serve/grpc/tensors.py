"""Protobuf's tensors, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from twoshift.errors import Inapplicable, InvalidInput, Shown, TooLarge
from twoshift.serve.grpc.messages import message
from twoshift.serve.oip.datatypes import BYTES, DTYPES
from twoshift.serve.oip.outputs import Output
from twoshift.serve.oip.tensors import GivenTensor, bad_tensor, from_raw, from_values, texts_of

__all__ = ["answer_of", "given_of", "parameter", "wanted_of"]

_SHARED = "shared_memory_region"
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", BYTES: "bytes_contents",
}  # fmt: skip
_MOST_VALUES = 1 << 20  # in a message: they are read one by one, bytes all at once
_Reply = message("ModelInferResponse")


def given_of(request: Any) -> list[GivenTensor]:
    """A request's inputs; the bytes of all of them stand beside, or the values of each in it."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidInput(
            "raw_input_contents", f"{len(raw)} tensors", f"{len(request.inputs)} tensors, one for each input"
        )
    for each in request.inputs:
        if _SHARED in each.parameters:
            raise bad_tensor(each.name, "shared memory", "a tensor in the request: shared memory is not supported")
    if not raw:
        return [_from_contents(each) for each in request.inputs]
    return [
        from_raw(each.name, each.datatype, tuple(each.shape), data)
        for each, data in zip(request.inputs, raw, strict=True)
    ]


def wanted_of(request: Any) -> list[str]:
    """The outputs that are wanted; none: all."""
    for each in request.outputs:
        if "classification" in each.parameters or _SHARED in each.parameters:
            why = "to ask for the classification or the shared-memory extension: neither is supported"
            raise Inapplicable(f"output {each.name[:80]!r}", True, why)
    return [each.name for each in request.outputs]


def parameter(request: Any, name: str) -> object:
    """One of a request's parameters; None where it is not given."""
    if name not in request.parameters:
        return None
    given = request.parameters[name]
    chosen = given.WhichOneof("choice")
    return getattr(given, chosen) if chosen else None


def answer_of(request_id: str, model: str, version: str, outputs: Sequence[Output]) -> Any:
    """Always raw: Triton's client reads nothing else."""
    reply = _Reply(model_name=model, model_version=version, id=request_id)
    for each in outputs:
        reply.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        reply.raw_output_contents.append(each.raw())
    return reply


def _from_contents(given: Any) -> GivenTensor:
    name, datatype, shape = given.name, given.datatype, tuple(given.shape)
    field = _CONTENTS.get(datatype)
    if field is None:
        raise bad_tensor(
            name, datatype, f"one of the datatypes {', '.join(_CONTENTS)}; send other datatypes in raw_input_contents"
        )
    values = getattr(given.contents, field)
    if len(values) > _MOST_VALUES:
        raise TooLarge(f"input {name[:80]!r}", f"{len(values):,} values", "the values in raw_input_contents instead")
    if datatype == BYTES:
        return from_values(name, datatype, shape, texts_of(name, values))
    dtype = DTYPES[datatype]
    if dtype.kind in "iu" and dtype.itemsize < 4 and len(values):
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise bad_tensor(name, Shown("a number that is too large"), f"values that {datatype} can hold")
    return from_values(name, datatype, shape, list(values))
