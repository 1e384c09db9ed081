"""Batches over a language model that serves: the same answers as live, in the background lane of its engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llm_service import LlmServer, until

from twoshift.types import Lane

pytest.importorskip("httptools")
pytest.importorskip("sqlalchemy")
OVER = ("completed", "failed", "expired", "cancelled")


def ended(client: Any, url: str, bodies: dict[str, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """The batch, and by id what each request was answered."""
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": url, "body": {"model": "m", **body}})
        for name, body in bodies.items()
    ]
    file = client.files.create(file=("mine.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status in OVER)
    done = client.batches.retrieve(batch.id)
    found = {}
    for each in (done.output_file_id, done.error_file_id):
        if each is not None:
            read = [json.loads(line) for line in client.files.content(each).text.splitlines()]
            found |= {line["custom_id"]: line["response"] for line in read}
    return done, found


def said(content: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 6, **more}


def test_chat_in_a_batch_is_answered_as_live(server: LlmServer, client: Any) -> None:
    bodies = {f"r{k}": said(f"a preamble, then {k}", logprobs=bool(k % 2)) for k in range(8)}
    done, found = ended(client, "/v1/chat/completions", bodies)
    assert done.status == "completed"
    assert found.keys() == bodies.keys()
    for name, response in found.items():
        assert response["status_code"] == 200
        live = server.ask("POST", "/v1/chat/completions", {"model": "m", **bodies[name]}).json()
        assert response["body"]["choices"] == live["choices"]
        assert response["body"]["usage"]["completion_tokens"] == 6
    usages = [each["body"]["usage"] for each in found.values()]
    assert done.usage.input_tokens == sum(each["prompt_tokens"] for each in usages)
    assert done.usage.output_tokens == sum(each["completion_tokens"] for each in usages) == 48
    cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in usages)
    assert done.usage.input_tokens_details.cached_tokens == cached > 0
    assert server.engine.sequences().lanes[Lane.BATCH].finished >= 8
    assert server.metric("twoshift_ttft_seconds_count", model="m", lane="batch") >= 8


def test_completions_in_a_batch(server: LlmServer, client: Any) -> None:
    bodies = {"one": {"prompt": "one", "max_tokens": 4}, "two": {"prompt": ["a", "b"], "max_tokens": 4, "n": 2}}
    done, found = ended(client, "/v1/completions", bodies)
    assert (done.status, done.request_counts.completed) == ("completed", 2)
    expected = server.generated("one", 4)
    assert [each["text"] for each in found["one"]["body"]["choices"]] == [expected]
    assert [each["index"] for each in found["two"]["body"]["choices"]] == [0, 1, 2, 3]
    assert found["two"]["body"]["usage"]["prompt_tokens"] == 2


def test_calls_of_tools_are_answers_of_a_batch_too(client: Any) -> None:
    tools = [{"type": "function", "function": {"name": "weather"}}]
    _, found = ended(client, "/v1/chat/completions", {"one": said("x", tools=tools, max_tokens=4)})
    [choice] = found["one"]["body"]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [each["function"]["name"] for each in choice["message"]["tool_calls"]] == ["weather", "clock"]
    asked = {"model": "m", "input": "x", "max_output_tokens": 4, "tools": [{"type": "function", "name": "weather"}]}
    _, found = ended(client, "/v1/responses", {"two": asked})
    assert [each["type"] for each in found["two"]["body"]["output"]] == ["message", "function_call", "function_call"]


def test_what_a_request_asks_wrongly_is_its_own_error(client: Any) -> None:
    refused = {"title": "refuse"}
    bodies = {
        "good": said("good"),
        "tools": said("x", tools=[{}]),
        "stream": said("x", stream=True),
        "long": said("x" * 300),
        "schema": said("x", response_format={"type": "json_schema", "json_schema": {"name": "it", "schema": refused}}),
    }
    done, found = ended(client, "/v1/chat/completions", bodies)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 1, 4)
    told = {name: (each["status_code"], each["body"].get("error", {}).get("param")) for name, each in found.items()}
    assert told == {
        "good": (200, None), "tools": (400, "tools[0].type"), "stream": (400, "stream"), "long": (400, "messages"),
        "schema": (400, "response_format"),
    }  # fmt: skip


def test_live_requests_are_answered_while_a_batch_waits(server: LlmServer, client: Any) -> None:
    lines = [
        json.dumps({"custom_id": str(k), "method": "POST", "url": "/v1/chat/completions",
                    "body": {"model": "m", **said(f"{k} of many", max_tokens=100)}}) for k in range(64)
    ]  # fmt: skip
    file = client.files.create(file=("many.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    assert server.chat("meanwhile").status == 200
    client.batches.cancel(batch.id)
    until(lambda: client.batches.retrieve(batch.id).status in OVER)
