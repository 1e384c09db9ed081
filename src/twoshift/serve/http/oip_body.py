"""The body of an inference request: JSON, then the bytes of tensors. A large one is looked at before it is decoded."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from twoshift.endpoints.json_body import decoded
from twoshift.errors import InvalidInput, TooLarge
from twoshift.serve.http.oip_types import InferRequest
from twoshift.serve.oip.tensors import GivenTensor, bad_tensor, from_json, from_raw

__all__ = ["HEADER", "given_inputs", "read_infer"]

HEADER = "inference-header-content-length"  # bytes of JSON, before those of tensors
_BINARY_INSTEAD = "; send large tensors as binary data"
_MOST_INPUTS = 1024  # of a request
_MOST_BYTES = 256 << 10  # of JSON that is no tensor's data: it becomes many objects at once, and holds up all threads


class _Outline(Struct):
    inputs: Raw


class _InputOutline(Struct):
    data: Raw = Raw()


_requests, _outlines = msgspec.json.Decoder(InferRequest), msgspec.json.Decoder(_Outline)
_inputs, _input_outlines = msgspec.json.Decoder(list[Raw]), msgspec.json.Decoder(_InputOutline)


def read_infer(
    body: bytes | bytearray, json_bytes: str | None, is_large: bool = False
) -> tuple[InferRequest, memoryview]:
    """The JSON, and the bytes after it, where the header says how long it is; raises InvalidInput."""
    whole, binary = memoryview(body), memoryview(b"")
    if json_bytes is not None:
        if not json_bytes.isdecimal() or int(json_bytes) > len(body):
            accepted = f"the number of bytes of the JSON at the beginning of the body, at most {len(body):,}"
            raise InvalidInput(HEADER, json_bytes, accepted)
        whole, binary = whole[: int(json_bytes)], whole[int(json_bytes) :]
    if is_large:
        _check_outline(whole)
    return decoded(_requests, whole, else_=_BINARY_INSTEAD), binary


def _check_outline(json: memoryview) -> None:
    """Raises TooLarge where it is more than data."""
    inputs = bytes(decoded(_outlines, json, else_=_BINARY_INSTEAD).inputs)
    listed = decoded(_inputs, inputs, "inputs")
    if len(listed) > _MOST_INPUTS:
        raise TooLarge("inputs", f"{len(listed):,} tensors", f"at most {_MOST_INPUTS:,} tensors")
    data_bytes = sum(len(bytes(decoded(_input_outlines, each, "inputs").data)) for each in listed)
    if (other_bytes := len(json) - data_bytes) > _MOST_BYTES:
        raise TooLarge(
            "body", f"{other_bytes:,} bytes of JSON without the data of the tensors", f"at most {_MOST_BYTES:,} bytes"
        )


def given_inputs(asked: InferRequest, binary: memoryview) -> list[GivenTensor]:
    """The inputs, with those that are binary taken from the bytes, in order."""
    found, at = list[GivenTensor](), 0
    for each in asked.inputs:
        size = each.parameters.binary_data_size
        if each.parameters.shared_memory_region is not None:
            raise bad_tensor(each.name, "shared memory", "a tensor in the request: shared memory is not supported")
        if size is None:
            found.append(from_json(each.name, each.datatype, each.shape, each.data))
            continue
        if not 0 <= size <= len(binary) - at or each.data:
            accepted = (
                f"a binary_data_size of at most {len(binary) - at:,}, the bytes that are left after the JSON, "
                "and no `data` field"
            )
            raise bad_tensor(each.name, f"binary_data_size {size:,}{' and data' if each.data else ''}", accepted)
        found.append(from_raw(each.name, each.datatype, each.shape, binary[at : at + size]))
        at += size
    if at != len(binary):
        accepted = "no bytes after the JSON other than those that the inputs declare in binary_data_size"
        raise InvalidInput("body", f"{len(binary) - at:,} extra bytes", accepted)
    return found
