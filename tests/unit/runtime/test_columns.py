from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import DeviceLost, InvalidInput, OutOfMemory
from twoshift.runtime.columns import ColumnRows, DoneCall, cast, concat
from twoshift.runtime.failures import device_failure, device_failures


def test_numbers_bools_strings_and_lists_become_arrays() -> None:
    rows = [
        {"n": 1, "x": 0.5, "b": True, "s": "one", "v": [1.0, 2.0]},
        {"n": 2, "x": 1, "b": False, "s": "", "v": (3, 4)},
    ]
    columns = ColumnRows.from_rows(rows).columns
    assert {name: (array.dtype.kind, array.shape) for name, array in columns.items()} == {
        "n": ("i", (2,)),
        "x": ("f", (2,)),
        "b": ("b", (2,)),
        "s": ("O", (2,)),
        "v": ("f", (2, 2)),
    }
    assert columns["s"].tolist() == ["one", ""]


def test_a_long_string_does_not_widen_its_neighbours() -> None:
    columns = ColumnRows.from_rows([{"s": "x" * 1_000_000}, *[{"s": "y"}] * 1000]).columns
    assert columns["s"].nbytes < 100_000


def test_numpy_scalars_and_arrays_are_taken_as_they_are() -> None:
    rows = [{"n": np.int32(number), "x": np.float32(0.5), "v": np.ones(3, np.float32)} for number in range(3)]
    columns = ColumnRows.from_rows(rows).columns
    assert columns["n"].tolist() == [0, 1, 2]
    assert columns["v"].dtype == np.float32
    assert columns["v"].shape == (3, 3)


GOOD: dict[str, Any] = {"a": 1.0, "s": "x", "v": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"a": "one"}, "field 'a': 'one'"),
        ({"a": None}, "field 'a' is missing"),
        ({"a": {}}, "field 'a'"),
        ({"a": b"x"}, "field 'a'"),
        ({"a": [1.0]}, "field 'a'"),
        ({"s": None}, "field 's'"),
        ({"s": 4}, "field 's': 4"),
        ({"v": [1.0]}, "field 'v'"),
        ({"v": [1.0, [2.0]]}, "field 'v'"),
        ({"v": [1.0, None]}, "field 'v' is missing"),
        ({"v": [1.0, "x"]}, "field 'v'"),
        ({"v": None}, "field 'v'"),
        ({"new": 1}, "field 'new'"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_row_and_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        ColumnRows.from_rows([GOOD, GOOD, GOOD | change, GOOD])
    assert f"row 2, {named}" in str(raised.value)


def test_a_number_that_no_machine_integer_holds_is_named() -> None:
    with pytest.raises(InvalidInput, match="row 1, field 'n'"):
        ColumnRows.from_rows([{"n": 1}, {"n": 2**70}])


def test_a_missing_field_names_its_row() -> None:
    with pytest.raises(InvalidInput, match="row 1, field 'b'"):
        ColumnRows.from_rows([{"a": 1, "b": 2}, {"a": 1}])
    with pytest.raises(InvalidInput, match="row 1, field 'b'"):
        ColumnRows.from_rows([{"a": 1, "b": 2}, {"a": 1}], fields=["b"])


@pytest.mark.parametrize("row", ["text", 3, [1.0, 2.0], None])
@pytest.mark.parametrize("fields", [None, ["a"]])
def test_a_row_that_is_not_a_dict_is_named(row: Any, fields: list[str] | None) -> None:
    with pytest.raises(InvalidInput, match="row 1"):
        ColumnRows.from_rows([{"a": 1}, row], fields=fields)


def test_fields_that_the_model_does_not_take_are_left_out() -> None:
    prepared = ColumnRows.from_rows(
        [{"id": None, "b": 2, "a": 1}, {"b": 3, "a": 2, "extra": object()}], fields=["a", "b"]
    )
    assert list(prepared.columns) == ["a", "b"]


def test_none_is_nan_only_where_the_model_takes_missing_values() -> None:
    rows = [{"a": 1, "v": [1, None]}, {"a": None, "v": [2, 3]}]
    columns = ColumnRows.from_rows(rows, missing=True).columns
    np.testing.assert_array_equal(columns["a"], [1.0, np.nan])
    np.testing.assert_array_equal(columns["v"], [[1.0, np.nan], [2.0, 3.0]])
    with pytest.raises(InvalidInput, match=r"row 1, field 'a' is missing; .* does not accept missing"):
        ColumnRows.from_rows([{"a": 1}, {"a": None}])


def test_every_row_counts_one_token_and_none_is_cut() -> None:
    prepared = ColumnRows.from_rows([{"a": 1}, {"a": 2}])
    assert prepared.lengths.tolist() == [1, 1]
    assert prepared.truncated.tolist() == [False, False]
    assert len(prepared) == 2


def test_a_slice_is_a_view() -> None:
    prepared = ColumnRows.from_rows([{"a": float(number)} for number in range(10)])
    assert np.shares_memory(prepared.slice(2, 5).columns["a"], prepared.columns["a"])


def test_columns_of_different_sizes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="rows in every column"):
        ColumnRows({"a": np.ones(2), "b": np.ones(3)})


def test_a_model_that_changes_its_input_does_not_change_the_rows() -> None:
    prepared = ColumnRows.from_rows([{"a": 1.0}])
    concat([prepared])["a"] *= 2
    assert prepared.columns["a"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("left", "right", "named"),
    [
        ([{"a": 1}], [{"b": 1}], "fields"),
        ([{"a": 1}], [{"a": "x"}], "field 'a'"),
        ([{"a": [1, 2]}], [{"a": [1, 2, 3]}], "field 'a'"),
        ([], [], "parts"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(left: list[Any], right: list[Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        concat([ColumnRows.from_rows(left), ColumnRows.from_rows(right)])


@given(st.lists(st.integers(0, 9), max_size=6).filter(any), st.data())
def test_parts_concatenate_to_the_whole(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    values = data.draw(st.lists(st.floats(allow_nan=False), min_size=total, max_size=total))
    whole = ColumnRows.from_rows([{"x": value, "s": str(value)} for value in values])
    edges = np.cumsum([0, *sizes])
    parts = [whole.slice(start, stop) for start, stop in pairwise(edges.tolist())]
    joined = concat(parts)
    assert joined["x"].tolist() == values
    assert joined["s"].tolist() == [str(value) for value in values]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0, 2.5], np.int64),
        ([1, 300], np.uint8),
        ([1, -1], np.uint64),
        ([1.0, 1e300], np.float32),
        ([0, 2], np.bool_),
    ],
)
def test_a_value_that_the_models_type_cannot_hold_names_its_row(values: list[Any], dtype: Any) -> None:
    with pytest.raises(InvalidInput, match="row 1, field 'x'"):
        cast(np.array(values), np.dtype(dtype), "x")


def test_infinities_and_nan_are_numbers() -> None:
    assert cast(np.array([np.inf, 1.0]), np.dtype(np.float32), "x").tolist() == [np.inf, 1.0]
    assert np.isnan(cast(np.array([np.nan]), np.dtype(np.float32), "x"))[0]


def test_a_string_is_not_a_number_nor_a_number_a_string() -> None:
    with pytest.raises(InvalidInput, match="a number"):
        cast(np.array(["1"], object), np.dtype(np.float32), "x")
    with pytest.raises(InvalidInput, match=r"row 2, field 'x': 'word'"):
        cast(np.array(["1", "2.5", "word", "other"], object), np.dtype(np.float32), "x")
    with pytest.raises(InvalidInput, match="a string"):
        cast(np.array([1.0]), np.dtype(object), "x")


def test_a_done_call_has_its_result() -> None:
    columns = {"y": np.ones(2)}
    assert DoneCall(columns).wait() is columns


class _Named(Exception):
    """An exception as a library would raise it."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), OutOfMemory),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemory),
        (RuntimeError("std::bad_alloc"), OutOfMemory),
        (RuntimeError("Failed to allocate memory for requested buffer of size 8589934592"), OutOfMemory),
        (RuntimeError("CUDA error: device-side assert triggered"), DeviceLost),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), DeviceLost),
        (RuntimeError("the model has its own troubles"), type(None)),
        (ValueError("I ran out of memory of what you said"), type(None)),
    ],
)
def test_full_and_lost_devices_are_told_from_a_models_own_errors(error: Exception, kind: type) -> None:
    assert type(device_failure(error)) is kind


def test_a_librarys_own_exception_types_are_recognised() -> None:
    full = type("Fail", (Exception,), {"__module__": "onnxruntime.capi.onnxruntime_pybind11_state"})
    assert isinstance(device_failure(full("Failed to allocate memory for requested buffer of size 1")), OutOfMemory)
    assert device_failure(_Named("Failed to allocate memory")) is None


def test_other_errors_leave_as_they_are() -> None:
    with pytest.raises(KeyError), device_failures():
        raise KeyError("x")
    with pytest.raises(OutOfMemory), device_failures():
        raise MemoryError
    with pytest.raises(InvalidInput), device_failures():
        raise InvalidInput("a", 1, "b")


@pytest.mark.parametrize("other", [np.array([1.5]), np.array([True]), np.array([1], np.int32), np.array([[1]])])
def test_rows_of_another_type_never_share_a_call(other: Any) -> None:
    rows = [ColumnRows({"n": np.array([2**53 + 1])}), ColumnRows({"n": other})]
    with pytest.raises(InvalidInput, match="the same type and size in all rows of a call"):
        concat(rows)
