"""The messages, held against the ones that Triton's client was made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("google.protobuf", reason="the grpc extra is not installed")

from twoshift.errors import InvalidInput
from twoshift.serve.grpc.messages import message
from twoshift.serve.grpc.tensors import given_of, parameter


def _ours() -> list[Any]:
    return list(message("ModelInferRequest").DESCRIPTOR.file.message_types_by_name.values())


def _theirs() -> dict[str, Any]:
    """Theirs by name, those inside others too."""
    service = pytest.importorskip("tritonclient.grpc.service_pb2")
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    found, left = {}, [each for file in (service, config) for each in file.DESCRIPTOR.message_types_by_name.values()]
    while left:
        described = left.pop()
        found[described.name] = described
        left += described.nested_types
    return found


def test_every_field_is_theirs() -> None:
    theirs = _theirs()
    for ours in _ours():
        for field in ours.fields:
            same = theirs[ours.name].fields_by_name[field.name]
            kinds = [(each.number, each.type, each.is_repeated) for each in (field, same)]
            assert kinds[0] == kinds[1], f"{ours.name}.{field.name}"
            if field.enum_type is not None:
                values = [{value.name: value.number for value in each.enum_type.values} for each in (field, same)]
                assert values[0] == values[1], f"{ours.name}.{field.name}"


def test_they_are_in_a_pool_of_their_own() -> None:
    theirs = pytest.importorskip("tritonclient.grpc.service_pb2").ModelInferRequest
    assert message("ModelInferRequest").DESCRIPTOR.file.pool is not theirs.DESCRIPTOR.file.pool


def infer(*inputs: dict[str, Any], raw: tuple[bytes, ...] = ()) -> Any:
    return message("ModelInferRequest")(model_name="m", inputs=inputs, raw_input_contents=raw)


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT16", "uint_contents", [0, 65535]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [0.5, float("inf")]),
        ("FP64", "fp64_contents", [0.1, -1e300]),
    ],
)
def test_values_may_stand_in_the_message(datatype: str, field: str, values: list[Any]) -> None:
    (read,) = given_of(infer({"name": "x", "datatype": datatype, "shape": [2], "contents": {field: values}}))
    assert np.asarray(read.values).tolist() == values


def test_texts_may_stand_in_the_message() -> None:
    contents = {"bytes_contents": ["é".encode(), b""]}
    (read,) = given_of(infer({"name": "x", "datatype": "BYTES", "shape": [2], "contents": contents}))
    assert read.values == ["é", ""]


@pytest.mark.parametrize(
    ("given", "raw", "told"),
    [
        ({"datatype": "INT8", "shape": [1], "contents": {"int_contents": [128]}}, (), "input 'x': .*INT8"),
        ({"datatype": "UINT8", "shape": [1], "contents": {"uint_contents": [256]}}, (), "input 'x': .*UINT8"),
        ({"datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1]}}, (), "input 'x': '1 values'.*2 values"),
        ({"datatype": "FP32", "shape": [2**21], "contents": {"fp32_contents": [0.0] * 2**21}}, (),
         r"input 'x': too large \(2,097,152 values\).*raw_input_contents"),
        ({"datatype": "FP16", "shape": [1]}, (), "input 'x': 'FP16'.*raw_input_contents"),
        ({"datatype": "FP32", "shape": [1]}, (b"1234", b"5678"), "raw_input_contents: '2 tensors'.*one for each"),
        ({"datatype": "FP32", "shape": [1]}, (b"12345",), "input 'x': '5 bytes'.*4 bytes"),
        ({"datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"\xff"]}}, (), "input 'x': .*UTF-8"),
        ({"datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": {"string_param": "r"}}}, (),
         "input 'x': 'shared memory'"),
    ],
)  # fmt: skip
def test_values_that_do_not_agree_are_refused_by_the_tensors_name(
    given: dict[str, Any], raw: tuple[bytes, ...], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        given_of(infer({"name": "x", **given}, raw=raw))


def test_a_parameter_is_read_whatever_its_kind() -> None:
    request = infer()
    request.parameters["timeout"].int64_param = 7
    request.parameters["priority"].uint64_param = 0
    request.parameters["empty"].SetInParent()
    assert [parameter(request, name) for name in ("timeout", "priority", "empty", "absent")] == [7, 0, None, None]
