"""Lines of a batch are read as the live endpoint reads a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twoshift.batch.requests.rows import asked_of
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
