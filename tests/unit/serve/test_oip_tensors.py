"""Tensors of the Open Inference Protocol, from bytes and from JSON, and back."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.serve.oip.datatypes import DTYPES, wire
from twoshift.serve.oip.outputs import Output
from twoshift.serve.oip.tensors import from_json, from_raw, texts_of

SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=4, max_side=4)
ANY = st.sampled_from(sorted(DTYPES)).flatmap(lambda name: arrays_of.arrays(DTYPES[name], SHAPES))
TEXTS = st.lists(st.text(max_size=20), min_size=1, max_size=8)


def output(values: NDArray[Any]) -> Output:
    datatype, on_the_wire = wire("x", values)
    return Output("x", datatype, values.shape, on_the_wire)


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@given(ANY)
def test_numbers_come_back_from_bytes_as_they_were(values: NDArray[Any]) -> None:
    sent = output(values)
    read = from_raw("x", sent.datatype, values.shape, sent.raw())
    assert same(np.asarray(read.values).reshape(values.shape), values)


@given(ANY)
def test_numbers_come_back_from_json_flat_or_nested(values: NDArray[Any]) -> None:
    values = np.nan_to_num(values) if values.dtype.kind == "f" else values
    sent = output(values)
    for data in (sent.listed(), values.tolist()):
        raw = msgspec.Raw(msgspec.json.encode(data))
        assert same(np.asarray(from_json("x", sent.datatype, values.shape, raw).values), values.ravel())


@given(TEXTS)
def test_texts_come_back_from_bytes_and_from_json(texts: list[str]) -> None:
    sent = output(np.array([*texts, None], object)[:-1])
    assert sent.datatype == "BYTES"
    assert from_raw("x", "BYTES", [len(texts)], sent.raw()).values == texts
    assert from_raw("x", "BYTES", [len(texts)], memoryview(sent.raw())).values == texts
    raw = msgspec.Raw(msgspec.json.encode(sent.listed()))
    assert from_json("x", "BYTES", [len(texts), 1], raw).values == texts


@given(arrays_of.arrays(np.float32, SHAPES))
def test_bfloat16_is_read_as_the_float_whose_upper_half_it_is(values: NDArray[Any]) -> None:
    upper = (values.view(np.uint32) >> 16).astype("<u2")
    read = from_raw("x", "BF16", values.shape, upper.tobytes()).values
    assert same(np.asarray(read), (upper.astype(np.uint32) << 16).view(np.float32).ravel())


@given(arrays_of.arrays(np.dtype(">i4"), SHAPES))
def test_columns_of_another_byte_order_are_told_little_endian(values: NDArray[Any]) -> None:
    assert output(values).raw() == values.astype("<i4").tobytes()


def test_a_byte_that_is_not_zero_is_true() -> None:
    read = from_raw("x", "BOOL", [3], b"\x00\x01\x02").values
    assert np.asarray(read).tolist() == [False, True, True]


def test_bytes_that_are_no_text_go_out_as_they_are_but_not_in_json() -> None:
    sent = output(np.array([b"\xff\x00", "a"], object))
    assert sent.raw() == b"\x02\0\0\0\xff\x00\x01\0\0\0a"
    with pytest.raises(InvalidInput, match=r"output 'x'.*not text.*binary_data"):
        sent.listed()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_json_has_not_is_asked_for_in_binary(value: float) -> None:
    sent = output(np.array([1.0, value]))
    assert np.array_equal(np.frombuffer(sent.raw()), [1.0, value], equal_nan=True)
    with pytest.raises(InvalidInput, match=r"output 'x'.*NaN or infinity.*binary_data"):
        sent.listed()


@pytest.mark.parametrize(
    ("datatype", "shape", "raw", "told"),
    [
        ("FP32", [2], bytes(7), "'7 bytes'.*8 bytes for FP32 of the shape \\[2\\]"),
        ("FP32", [2, 3], bytes(16), "'16 bytes'.*24 bytes"),
        ("FP31", [1], bytes(4), "'FP31'.*a datatype: one of BOOL"),
        ("", [1], b"", "a datatype"),
        ("FP32", [], bytes(4), "'0 dimensions'.*the first is the number of rows"),
        ("FP32", [1] * 17, bytes(4), "'17 dimensions'"),
        ("FP32", [-1, 2], bytes(8), "\\[-1, 2\\].*sizes from 1"),
        ("FP32", [1 << 50], b"", "sizes from 1"),
        ("FP32", [1 << 39, 0], b"", "sizes from 1"),
        ("BYTES", [1], b"", "'0 bytes'.*1 elements"),
        ("BYTES", [1], b"\x01\0\0", "'3 bytes'.*1 elements"),
        ("BYTES", [1], b"\x09\0\0\0abc", "'7 bytes'.*1 elements"),
        ("BYTES", [1], b"\xff\xff\xff\xff", "'4 bytes'.*1 elements"),
        ("BYTES", [2], b"\x01\0\0\0a", "'5 bytes'.*2 elements"),
        ("BYTES", [1], b"\x01\0\0\0ab", "'6 bytes'.*1 elements"),
        ("BYTES", [2], b"\x01\0\0\0a\x02\0\0\0\xc3\x28", "UTF-8; element 1"),
        ("BYTES", [1], b"\x02\0\0\0\xc3\x28", "UTF-8; element 0"),
        ("BYTES", [1, 1 << 20], bytes(4 << 20), r"too large \(1,048,576 texts\).*at most 262,144"),
    ],
)
def test_bytes_that_do_not_agree_are_refused_by_the_tensors_name(
    datatype: str, shape: list[int], raw: bytes, told: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^input 'wide': .*{told}"):
        from_raw("wide", datatype, shape, raw)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        ("FP32", [2], "[1.0]", "'1 values'.*2 values for the shape \\[2\\]"),
        ("FP32", [1], '["1.0"]', "FP32 values.*Expected `float`, got `str`"),
        ("FP32", [1], "[true]", "Expected `float`, got `bool`"),
        ("FP32", [1], "[null]", "Expected `float`, got `null`"),
        ("FP32", [1], "[1e39]", "Expected `float` <"),
        ("FP16", [1], "[65520]", "Expected `float` <"),
        ("FP64", [1], "[NaN]", "malformed|invalid"),
        ("INT8", [1], "[128]", "Expected `int` <= 127"),
        ("UINT8", [1], "[-1]", "Expected `int` >= 0"),
        ("INT32", [1], "[1.5]", "Expected `int`, got `float`"),
        ("INT64", [1], "[9223372036854775808]", "too large|INT64"),
        ("UINT64", [1], "[-1]", "UINT64"),
        ("UINT64", [1], "[18446744073709551616]", "UINT64"),
        ("BOOL", [1], "[1]", "Expected `bool`, got `int`"),
        ("BYTES", [1], "[1]", "Expected `str`, got `int`"),
        ("BYTES", [2], '[["ab"], "cd"]', "Expected `str`, got `array`"),
        ("FP32", [2], "[[1], 2]", "Expected `float`, got `array`"),
        ("FP32", [1], "1", "Expected `array`, got `int`"),
        ("FP32", [1], '{"a": 1}', "Expected `array`, got `object`"),
        ("FP32", [1], "", "`data`, or `parameters.binary_data_size"),
        ("FP32", [1], "[" * 40 + "1" + "]" * 40, "Expected `float`, got `array`"),
        ("BF16", [1], "[1.0]", "'BF16'.*only as binary data"),
    ],
)
def test_json_that_does_not_agree_is_refused_by_the_tensors_name(
    datatype: str, shape: list[int], data: str, told: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^input 'wide': .*({told})"):
        from_json("wide", datatype, shape, msgspec.Raw(data.encode()))


def test_a_number_that_rounds_to_the_largest_is_taken() -> None:
    read = from_json("x", "FP32", [1], msgspec.Raw(b"[3.4028235e38]")).values
    assert np.asarray(read).tolist() == [float(np.finfo(np.float32).max)]


def test_a_long_name_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_raw("n" * 100_000, "FP32", [1], b"")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("shape", "data", "number"),
    [([1], b'["a\xff"]', 0), ([3], b'["a", "b", "\xc3("]', 2), ([2, 2], b'[["a", "b"], ["c", "\xff\xfe"]]', 3)],
)
def test_json_that_is_no_utf_8_is_refused_by_tensor_and_element(shape: list[int], data: bytes, number: int) -> None:
    with pytest.raises(InvalidInput, match=f"^input 'wide': .*UTF-8; element {number} is invalid"):
        from_json("wide", "BYTES", shape, msgspec.Raw(data))


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL"])
@pytest.mark.parametrize("nested", [False, True])
def test_many_numbers_are_read_in_pieces_as_few_are(datatype: str, nested: bool) -> None:
    values = [bool(each % 3) if datatype == "BOOL" else each for each in range(200_000)]
    shown = [values[:100_000], values[100_000:]] if nested else values
    found = from_json("x", datatype, [2, 100_000], msgspec.Raw(msgspec.json.encode(shown)))
    few = from_json("x", datatype, [1], msgspec.Raw(msgspec.json.encode(values[:1])))
    assert isinstance(found.values, np.ndarray)
    assert isinstance(few.values, np.ndarray)
    assert found.values.dtype == few.values.dtype
    assert found.values.tolist() == values


@pytest.mark.parametrize("bad", [b"x", b"", b'"1"', b"null", b"1 2"])
@pytest.mark.parametrize("place", [0, 99_999, 199_999])
def test_one_bad_number_among_many_is_refused(bad: bytes, place: int) -> None:
    listed = [b"%d" % each for each in range(200_000)]
    listed[place] = bad
    with pytest.raises(InvalidInput, match=r"^input 'x': .*INT32 values"):
        from_json("x", "INT32", [200_000], msgspec.Raw(b"[" + b",".join(listed) + b"]"))
    with pytest.raises(InvalidInput, match=r"'200,000 values'.*3 values"):
        from_json("x", "INT32", [3], msgspec.Raw(b"[" + b",".join([b"1"] * 200_000) + b"]"))


def test_bytes_of_grpc_that_are_no_utf_8_are_refused_by_tensor_and_element() -> None:
    with pytest.raises(InvalidInput, match=r"^input 'wide': .*UTF-8; element 1 is invalid"):
        texts_of("wide", [b"a", b"\xff"])
