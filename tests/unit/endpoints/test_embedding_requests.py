"""Requests for embeddings: what is accepted, and what is refused rather than answered wrongly."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from twoshift.endpoints.facts import ModelFacts, finite_rows
from twoshift.endpoints.faults import fault_of
from twoshift.endpoints.known import ENDPOINTS
from twoshift.errors import BrokenModel, InvalidInput

MODEL = ModelFacts("m", ("embedding",), {"embedding": 8}, most_rows=64)


def asked(given: Any, **more: Any) -> list[Any]:
    """The rows, as both shifts make them from a body."""
    body = json.dumps({"model": "m", "input": given, **more}).encode()
    return ENDPOINTS["/v1/embeddings"](body, MODEL).rows


@pytest.mark.parametrize("ids", [[101, 7, 102], [[101, 7, 102], [101, 102]]])
def test_token_ids_are_refused_unless_the_request_says_that_they_are_the_models_own(ids: list[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"check_embedding_ctx_length=False") as refused:
        asked(ids)
    assert fault_of(refused.value).status == 400
    assert refused.value.field == "input"
    assert "allow_token_ids" in str(refused.value)
    assert asked(ids, allow_token_ids=True) == (ids if isinstance(ids[0], list) else [ids])
    with pytest.raises(InvalidInput, match="allow_token_ids"):
        asked(ids, allow_token_ids=False)


@pytest.mark.parametrize("field", ["frobnicate", "truncate", "normalize"])
def test_an_unknown_field_is_refused_with_those_that_are_accepted(field: str) -> None:
    with pytest.raises(InvalidInput, match=r"encoding_format") as refused:
        asked("a text", **{field: "query"})
    assert refused.value.field == field
    assert "dimensions" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        (5, {}, "input: expected a string or a list of strings"),
        ({"text": "a"}, {}, "input: expected a string or a list of strings"),
        (["a", 5], {}, "input[1]: expected a string, not a whole number"),
        ("a", {"encoding_format": "hex"}, "encoding_format: expected float or base64"),
        ("a", {"dimensions": "8"}, "dimensions: expected a whole number, not a string"),
        ("a", {"dimensions": 0}, "dimensions: expected a whole number >= 1"),
        ("a", {"model": 7}, "model: expected a string, not a whole number"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_in_the_words_of_json(given: Any, more: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(given, **more)
    assert str(refused.value) == said


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"^input: expected a value; this field is required$"):
        ENDPOINTS["/v1/embeddings"](b'{"model": "m"}', MODEL)


def test_what_openais_clients_send_is_accepted() -> None:
    assert asked("a text", user="me", encoding_format="base64", dimensions=4) == ["a text"]
    assert asked(["a", "b"], user=None, dimensions=None, encoding_format=None, anything=None) == ["a", "b"]


def test_texts_may_be_cut_at_what_the_model_takes_and_not_before() -> None:
    model = ModelFacts("m", ("embedding",), {}, 64, row_tokens=256)
    for tokens in (-1, 256, 8192):  # the first is what `vllm bench serve` sends
        assert prompted("a text", model, truncate_prompt_tokens=tokens) == ["a text"]
    with pytest.raises(InvalidInput, match=r"truncate_prompt_tokens: 255 .* at least 256"):
        prompted("a text", model, truncate_prompt_tokens=255)


PROMPTS = {"query": "search: ", "passage": "text: ", "clustering": "cluster: "}
PROMPTED = ModelFacts("m", ("embedding",), {}, 64, prompts=PROMPTS)


def prompted(given: Any, model: ModelFacts = PROMPTED, **more: Any) -> list[Any]:
    body = json.dumps({"model": "m", "input": given, **more}).encode()
    return ENDPOINTS["/v1/embeddings"](body, model).rows


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"prompt_name": "clustering"}, "clustering"),
        ({"input_type": "query"}, "query"),
        ({"input_type": "search_query"}, "query"),
        ({"input_type": "document"}, "passage"),
        ({"input_type": "search_document"}, "passage"),
        ({"input_type": "clustering"}, "clustering"),
    ],
)
def test_a_prompt_is_chosen_by_its_name_or_by_what_the_input_is(more: dict[str, Any], name: str) -> None:
    row = {"text": "a", "prompt_name": name}
    assert prompted(["a", "b"], **more) == [row, {**row, "text": "b"}]
    assert prompted("a", **more) == [row]


def test_without_a_choice_rows_have_the_models_default() -> None:
    assert prompted("a") == ["a"]


def test_documents_of_a_model_with_prompts_for_queries_alone_have_none() -> None:
    only_queries = ModelFacts("m", ("embedding",), {}, 64, prompts={"query": "search: "})
    assert prompted("a", only_queries, input_type="document") == [{"text": "a", "prompt": ""}]


@pytest.mark.parametrize(
    ("model", "more", "accepted"),
    [
        (PROMPTED, {"prompt_name": "nope"}, "one of clustering, passage, query"),
        (PROMPTED, {"input_type": "nope"}, "one of clustering, passage, query"),
        (MODEL, {"prompt_name": "query"}, "this model has no prompts"),
        (MODEL, {"input_type": "query"}, "this model has no prompts"),
        (PROMPTED, {"prompt_name": "query", "input_type": "query"}, "cannot be used with prompt_name"),
    ],
)
def test_a_prompt_that_the_model_has_not_is_refused(model: ModelFacts, more: dict[str, Any], accepted: str) -> None:
    with pytest.raises(InvalidInput, match=accepted) as refused:
        prompted("a", model, **more)
    assert refused.value.field in more


def test_token_ids_have_no_prompt() -> None:
    with pytest.raises(InvalidInput, match="prompt_name"):
        prompted([1, 2], allow_token_ids=True, prompt_name="query")


@pytest.mark.parametrize("rows", [1, 3])
def test_an_answer_that_json_cannot_say_names_its_row(rows: int) -> None:
    answers: list[dict[str, Any]] = [{"v": np.ones(4, np.float32)} for _ in range(rows)]
    assert [each is row["v"] for each, row in zip(finite_rows(answers, "v"), answers, strict=True)] == [True] * rows
    for bad, why in (
        ([1, np.nan], f"row {rows - 1} contains NaN"),
        (np.ones((2, 2)), "2 dimensions per row; expected 1"),
    ):
        answers[-1] = {"v": np.array(bad)}
        with pytest.raises(BrokenModel, match=why):
            finite_rows(answers, "v")
    with pytest.raises(InvalidInput, match="an output named `w`"):
        finite_rows(answers, "w")
