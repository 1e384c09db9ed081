"""Tensors to rows, and results to tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from twoshift.engine import RowResult
from twoshift.errors import BrokenModel, InvalidInput
from twoshift.ports import RuntimeInfo
from twoshift.serve.oip.outputs import outputs_of
from twoshift.serve.oip.rows import declared_inputs, row_reader
from twoshift.serve.oip.tensors import GivenTensor
from twoshift.types import Tensor

TEXT, QUERY = Tensor("text", "text"), Tensor("query", "text")


def info(*inputs: Tensor, example: Any = None) -> RuntimeInfo:
    return RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, (), inputs=inputs, example=example)


def texts(name: str, *values: str, shape: Sequence[int] | None = None) -> GivenTensor:
    return GivenTensor(name, "BYTES", [len(values)] if shape is None else shape, list(values))


def floats(name: str, values: Any, datatype: str = "FP32", dtype: str = "f4") -> GivenTensor:
    array = np.array(values, dtype)
    return GivenTensor(name, datatype, array.shape, array.ravel())


def test_a_text_model_takes_a_column_of_texts() -> None:
    read = row_reader(info(TEXT))
    assert read([texts("text", "a", "b")]) == ["a", "b"]
    assert read([texts("text", "a", "b", shape=[2, 1])]) == ["a", "b"]


def test_one_query_stands_for_all_texts() -> None:
    read = row_reader(info(QUERY, TEXT))
    assert read([texts("text", "a", "b"), texts("query", "q")]) == [("q", "a"), ("q", "b")]
    assert read([texts("query", "q", "r"), texts("text", "a", "b")]) == [("q", "a"), ("r", "b")]
    with pytest.raises(InvalidInput, match=r"input 'query': '3 rows'.*1 row, or 2"):
        read([texts("query", "q", "r", "s"), texts("text", "a", "b")])


def test_declared_tensors_become_dicts_of_arrays_and_numbers() -> None:
    read = row_reader(info(Tensor("features", "float32", (2,)), Tensor("age", "float32"), example={}))
    rows = read([floats("age", [7, 8]), floats("features", [[1, 2], [3, 4]])])
    assert [row["age"] for row in rows] == [7.0, 8.0]
    assert [row["features"].tolist() for row in rows] == [[1, 2], [3, 4]]
    assert rows[0]["features"].dtype == np.float32


@pytest.mark.parametrize(("declared", "sent"), [((), [[1.0], [2.0]]), ((1,), [1.0, 2.0])])
def test_one_value_a_row_may_have_an_axis_of_its_own(declared: tuple[int, ...], sent: Any) -> None:
    rows = row_reader(info(Tensor("x", "float32", declared), example={}))([floats("x", sent)])
    assert [np.shape(row["x"]) for row in rows] == [declared, declared]


def test_a_size_that_is_free_takes_any() -> None:
    read = row_reader(info(Tensor("x", "float32", (-1, 2)), example={}))
    assert read([floats("x", np.ones((1, 5, 2)))])[0]["x"].shape == (5, 2)


def test_bfloat16_is_taken_where_its_floats_are_expected() -> None:
    read = row_reader(info(Tensor("x", "float32"), example={}))
    assert list(read([floats("x", [1.0], "BF16")])) == [{"x": 1.0}]


def test_a_model_that_is_not_sure_of_its_types_takes_others() -> None:
    table = dataclasses.replace(info(Tensor("city", "float64")), runtime="sklearn")
    assert list(row_reader(table)([texts("city", "Ulm")])) == [{"city": "Ulm"}]


def test_a_class_that_declares_nothing_takes_what_comes() -> None:
    read = row_reader(info())
    words = GivenTensor("w", "BYTES", [2, 2], ["a", "b", "c", "d"])
    wide = GivenTensor("n", "UINT64", [2], np.array([1, 2**64 - 1], np.uint64))
    assert list(read([words, wide])) == [{"w": ["a", "b"], "n": 1}, {"w": ["c", "d"], "n": 2**64 - 1}]


def test_rows_look_like_the_example_of_a_class() -> None:
    assert row_reader(info(example="some text"))([texts("text", "a")]) == ["a"]
    assert row_reader(info(example=[1.0, 2.0]))([floats("features", [[3, 4]])])[0].tolist() == [3, 4]
    assert declared_inputs(info(example={"x": [1, 2], "w": "a", "odd": [[1], [2, 3]], "none": None})) == (
        Tensor("x", "int64", (2,)),
        Tensor("w", "text"),
    )


@pytest.mark.parametrize(
    ("inputs", "given", "told"),
    [
        ((TEXT,), [], r"inputs: \[\].*the tensors text"),
        ((TEXT,), [texts("words", "a")], r"inputs: \['words'\].*the tensors text"),
        ((TEXT,), [texts("text", "a"), texts("text", "b")], "each once"),
        ((TEXT,), [floats("text", [1.0])], "input 'text': 'FP32'.*BYTES"),
        ((TEXT,), [texts("text", "a", "b", shape=[1, 2])], r"input 'text': \[1, 2\].*\[rows, 1\]"),
        ((QUERY, TEXT), [texts("text", "a")], r"inputs: \['text'\].*query, text"),
        ((), [], "inputs: .*a tensor"),
        ((), [floats("a", [1]), floats("a", [1])], "each once"),
        ((), [floats("a", [1]), floats("b", [1, 2])], r"input 'b': \[2\].*1 rows, as in 'a'"),
        ((Tensor("x", "float32"),), [floats("x", [1], "FP64", "f8")], "input 'x': 'FP64'.*FP32"),
        ((Tensor("x", "float32"),), [texts("x", "1")], "input 'x': 'BYTES'.*FP32"),
        ((Tensor("x", "text"),), [floats("x", [1])], "input 'x': 'FP32'.*BYTES"),
        ((Tensor("x", "float32", (2,)),), [floats("x", [[1, 2, 3]])], r"input 'x': \[1, 3\].*\[-1, 2\]"),
        ((Tensor("x", "float32", (2,)),), [floats("x", [1])], r"input 'x': \[1\].*\[-1, 2\]"),
        ((Tensor("x", "float32"), Tensor("y", "float32")), [floats("x", [1])], r"inputs: \['x'\].*x, y"),
    ],
)
def test_tensors_that_are_not_the_models_are_refused_by_name(
    inputs: tuple[Tensor, ...], given: list[GivenTensor], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        row_reader(info(*inputs, example={} if inputs else None))(given)


def results(*calls: tuple[dict[str, Any], list[int]]) -> list[RowResult]:
    return [RowResult(columns, index, 0.0, 1) for columns, indices in calls for index in indices]


def test_rows_of_one_call_and_of_several_are_joined_in_order() -> None:
    first, second = {"y": np.array([[1, 2], [3, 4], [5, 6]])}, {"y": np.array([[7, 8]])}
    for rows, expected in (
        (results((first, [1, 2])), [[3, 4], [5, 6]]),
        (results((first, [2, 0])), [[5, 6], [1, 2]]),
        (results((first, [0]), (second, [0])), [[1, 2], [7, 8]]),
    ):
        (found,) = outputs_of(rows, None)
        assert (found.name, found.datatype, found.shape) == ("y", "INT64", (2, 2))
        assert np.frombuffer(found.raw(), np.int64).reshape(2, 2).tolist() == expected


def test_outputs_come_in_the_order_that_they_are_asked_in() -> None:
    rows = results(({"a": np.array([1.0]), "b": np.array(["x"])}, [0]))
    assert [(each.name, each.listed()) for each in outputs_of(rows, ["b", "a"])] == [("b", ["x"]), ("a", [1.0])]
    with pytest.raises(InvalidInput, match=r"outputs: 'c'.*one of these outputs: a, b"):
        outputs_of(rows, ["c"])


def test_a_model_that_answers_with_what_has_no_datatype_is_broken() -> None:
    with pytest.raises(BrokenModel, match="'z' has the type complex128"):
        outputs_of(results(({"z": np.array([1j])}, [0])), None)
    with pytest.raises(BrokenModel, match="'y' differs in shape between two calls"):
        outputs_of(results(({"y": np.ones((1, 2))}, [0]), ({"y": np.ones((1, 3))}, [0])), None)
    with pytest.raises(BrokenModel, match="'y' differs in shape between two calls"):
        outputs_of(results(({"y": np.ones(1)}, [0]), ({"z": np.ones(1)}, [0])), None)
