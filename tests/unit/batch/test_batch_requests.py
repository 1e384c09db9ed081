"""Lines of a batch are read as the live endpoint reads a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twoshift.batch.kinds.request_lines import checked_line
from twoshift.batch.kinds.request_rows import asked_of
from twoshift.batch.settings import JobSettings
from twoshift.endpoints.faults import fault_of
from twoshift.ports import RuntimeInfo

SETTINGS = JobSettings(inputs=("i",), output="o", model="m", endpoint="/v1/embeddings", output_format="lines")
MODEL = RuntimeInfo("m", "0", "onnxruntime", "cpu", "fp32", 256, ("embedding",), prompts={"query": "search: "})


def read(**body: Any) -> Any:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", **body}}
    return asked_of(json.dumps(line).encode(), SETTINGS, MODEL, most_rows=64)


def test_token_ids_of_a_line_are_refused_unless_it_says_that_they_are_the_models() -> None:
    refused = read(input=[64, 2579, 39935])
    assert fault_of(refused.error).status == 400
    assert "check_embedding_ctx_length=False" in str(refused.error)
    assert read(input=[64, 2579], allow_token_ids=True).call.rows == [[64, 2579]]


@pytest.mark.parametrize("field", ["frobnicate", "normalize"])
def test_an_unknown_field_of_a_line_is_its_error(field: str) -> None:
    assert read(input="a", **{field: True}).error.field == field


def test_a_line_chooses_a_prompt() -> None:
    assert read(input="a", prompt_name="query").call.rows == [{"text": "a", "prompt_name": "query"}]


def test_a_line_for_another_model_is_its_own_error() -> None:
    asked = read(input="a", model="other")
    assert fault_of(asked.error).status == 404
    assert "other" in str(asked.error)


def test_a_line_that_is_fine_is_read_whole_and_any_other_is_left_to_those_who_say_what_is_wrong() -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", "input": ["b"] * 3}}
    found = checked_line(json.dumps(line).encode())
    assert found is not None
    assert (found.custom_id, found.method, found.url, found.body.model) == ("a", "POST", "/v1/embeddings", "m")
    for wrong in (b"{", b"\xff", b"[" * 10_000, json.dumps(line | {"body": {"input": "b"}}).encode()):
        assert checked_line(wrong) is None
