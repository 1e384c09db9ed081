"""Rows of named values in both shifts: as a request has them, and as the model gets them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from twoshift.endpoints.facts import ModelFacts
from twoshift.endpoints.known import ENDPOINTS, SCORE, with_request_field
from twoshift.endpoints.score import ScoreCall, read_score
from twoshift.errors import BrokenModel, InvalidInput, TwoshiftError
from twoshift.runtime.features import FEATURES, Features
from twoshift.types import Tensor

TEXT, QUERY = Tensor("text", "text"), Tensor("query", "text")


def call(rows: list[Any], **facts: Any) -> ScoreCall:
    body = json.dumps({"rows": rows}).encode()
    return ScoreCall(read_score(body), ModelFacts("m", facts.pop("outputs", ()), {}, 100, **facts))


def test_rows_of_a_tabular_model_come_as_they_are() -> None:
    rows = [{"amount": 1.5, "id": "a"}, {"amount": None, "id": "b"}]
    assert call(rows, inputs=(Tensor("features", "float32", (1,)),)).rows == rows


@pytest.mark.parametrize(
    ("inputs", "expected"), [((TEXT,), ["old"]), ((QUERY, TEXT), [("road", "old")])], ids=["text", "pair"]
)
def test_rows_of_texts_are_taken_by_their_names(inputs: tuple[Tensor, ...], expected: list[Any]) -> None:
    assert call([{"text": "old", "query": "road", "id": 7}], inputs=inputs).rows == expected


def test_a_row_without_its_text_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"rows\[1\]\.text"):
        call([{"text": "old"}, {"text": None}], inputs=(TEXT,))


def test_class_names_stand_beside_the_numbers() -> None:
    asked = call([{"a": 1}], outputs=("prediction", "probabilities"), classes={"probabilities": ("ham", "spam")})
    told = json.loads(asked.reply([{"prediction": np.array("spam"), "probabilities": np.array([0.25, 0.75])}], 1))
    assert told == {
        "model": "m",
        "rows": [{"prediction": "spam", "probabilities": [0.25, 0.75]}],
        "classes": {"probabilities": ["ham", "spam"]},
    }


def test_what_json_cannot_say_is_the_models_error() -> None:
    with pytest.raises(BrokenModel, match="prediction` for row 0"):
        call([{"a": 1}], outputs=("prediction",)).reply([{"prediction": np.nan}], 1)


@pytest.mark.parametrize("body", [b"{}", b'{"rows": []}', b'{"rows": [1]}', b'{"rows": [{}], "x": 1}'])
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(TwoshiftError):
        ScoreCall(read_score(body), ModelFacts("m", (), {}, 100))


def test_a_language_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match="generates text"):
        call([{"a": 1}], outputs=("text", "finish_reason"))


def test_a_batch_is_made_of_the_same_requests() -> None:
    found = ENDPOINTS[SCORE](b'{"model": "m", "rows": [{"a": 1}]}', ModelFacts("m", (), {}, 100))
    assert found.rows == [{"a": 1}]


def test_an_error_names_the_field_of_the_request() -> None:
    told = with_request_field(SCORE, InvalidInput("row 3, field 'amount'", "x", "a number"))
    assert isinstance(told, InvalidInput)
    assert told.field == "rows[3].amount"


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_a_null_and_an_empty_text_are_the_same_missing_value(missing: Any) -> None:
    features = Features(("a", "b"), 2, missing=True, dtype=np.float32)
    found = features.prepare([{"a": 1, "b": missing}, {"a": 2, "b": 3.5}]).columns[FEATURES]
    np.testing.assert_array_equal(found, np.array([[1, np.nan], [2, 3.5]], np.float32))


def test_a_column_of_empty_texts_alone_is_missing() -> None:
    features = Features(("a", "b"), 2, missing=True, dtype=np.float32)
    found = features.prepare([{"a": 1, "b": ""}]).columns[FEATURES]
    np.testing.assert_array_equal(found, np.array([[1, np.nan]], np.float32))


@pytest.mark.parametrize("row", [{"a": "x", "b": ""}, {"a": ""}, "x"])
def test_other_texts_and_lacking_fields_stay_errors(row: Any) -> None:
    with pytest.raises(InvalidInput, match="row 0"):
        Features(("a", "b"), 2, missing=True, dtype=np.float32).prepare([row])


def test_a_model_without_missing_values_takes_no_empty_text() -> None:
    with pytest.raises(InvalidInput, match="row 0"):
        Features(("a",), 1, missing=False, dtype=np.float32).prepare([{"a": ""}])
