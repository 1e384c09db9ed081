"""Columns of text as a model is given them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from input_files import blobs_for, jsonl, parquet, put

from twoshift.batch.inputs import as_typed, model_types
from twoshift.errors import InvalidInput


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "", " 3 ", "+4", "NA"], "int"),
        (["1", "2.5", ".5", "1."], "float"),
        (["1e5", "NaN", "-inf"], "float"),
        (["", "NULL"], "float"),
        (["true", "False", ""], "bool"),
        (["007"], "string"),
        (["12345678901234567890"], "string"),
        (["2026-01-02"], "string"),
        (["NA", "DE"], "string"),
        (['""', "1"], "int"),
    ],
)
def test_a_model_gets_the_type_that_all_values_have(tmp_path: Path, values: list[str], kind: str) -> None:
    file = put(tmp_path / "a.csv", ("a,b\n" + "".join(f"{value},x\n" for value in values)).encode())
    assert model_types([file], blobs_for, ["a"], {}) == {"a": kind}


def test_files_of_one_input_agree_on_a_type(tmp_path: Path) -> None:
    files = [
        put(tmp_path / "a.csv", b"n,when\n1,2026-01-02\n"),
        put(tmp_path / "b.tsv", b"n\twhen\n2.5\t\n"),
        put(tmp_path / "c.parquet", parquet(pa.table({"n": pa.array([1], pa.int32())}))),
    ]
    assert model_types(files, blobs_for, None, {}) == {"n": "float", "when": "string"}
    assert model_types(files, blobs_for, None, {"when": "int"}) == {"n": "float", "when": "int"}


def test_lines_of_json_say_their_types_themselves(tmp_path: Path) -> None:
    file = put(tmp_path / "a.jsonl", jsonl([{"n": "1"}]))
    assert model_types([file], blobs_for, None, {}) == {}
    assert model_types([file], blobs_for, None, {"n": "int"}) == {"n": "int"}
    with pytest.raises(InvalidInput, match=r"types: 'm' .* a column of .*a.jsonl"):
        model_types([file], blobs_for, None, {"m": "int"})


@pytest.mark.parametrize(
    ("name", "values", "typed", "unfit"),
    [
        ("int", ["007", "+5", "-0", None, "N/A", "1.0", "9" * 19], [7, 5, 0, None, None, None, None], [5, 6]),
        ("float", ["1.", " 7 ", "+1e2", "", "x"], [1.0, 7.0, 100.0, None, None], [4]),
        ("bool", ["True", "0", "yes"], [True, False, None], [2]),
        ("string", ["007", "NA", None], ["007", "NA", None], []),
    ],
)
def test_values_that_do_not_fit_are_named(name: str, values: list[str], typed: list[object], unfit: list[int]) -> None:
    found, wrong = as_typed(pa.array(values), name)
    assert found.to_pylist() == typed
    assert wrong == {row: repr(values[row]) for row in unfit}


@given(st.lists(st.floats(width=64), min_size=1))
def test_floats_are_read_as_they_were_written(values: list[float]) -> None:
    found, wrong = as_typed(pa.array([repr(value) for value in values]), "float")
    assert wrong == {}
    np.testing.assert_array_equal(found.to_numpy(), values)


def test_numbers_stay_what_they_are() -> None:
    column = pa.array([1.5])
    assert as_typed(column, "int") == (column, {})


@pytest.mark.parametrize(
    ("column", "name", "typed"),
    [
        (pa.array([1, None], pa.int32()), "float", [1.0, None]),
        (pa.array([1, 0], pa.int8()), "bool", [True, False]),
        (pa.array([7], pa.int64()), "string", ["7"]),
        (pa.array([1.5]), None, [1.5]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)), None, [1.5, None]),
        (pa.array([[1, 2]]), "string", [[1, 2]]),
    ],
)
def test_columns_that_are_no_text_take_a_stated_type(column: pa.Array, name: str | None, typed: list[object]) -> None:
    found, unfit = as_typed(column, name, is_stated=True)
    assert (found.to_pylist(), unfit) == (typed, {})


def test_a_number_that_does_not_fit_a_stated_type_is_named() -> None:
    found, unfit = as_typed(pa.array([1.0, 1.5]), "int", is_stated=True)
    assert (found.to_pylist(), unfit) == ([1, None], {1: "1.5"})
