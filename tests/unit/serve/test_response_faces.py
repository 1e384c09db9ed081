"""OpenAI's responses over HTTP, by OpenAI's own client and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llm_service import Got, LlmServer, llm_server

from twoshift.endpoints.chat_types import GenerationUsage
from twoshift.endpoints.facts import ModelFacts
from twoshift.endpoints.responses import ResponseCall, read_response
from twoshift.errors import DeviceLost
from twoshift.generation import Delta, FinishReason

pytest.importorskip("httptools")


def asked(server: LlmServer, **more: Any) -> Got:
    return server.ask("POST", "/v1/responses", {"model": "m", "input": "hello", "max_output_tokens": 5, **more})


@pytest.mark.slow
def test_openais_client_gets_a_response(server: LlmServer, client: Any) -> None:
    reply = client.responses.create(model="m", instructions="Be short.", input="a question", max_output_tokens=7)
    assert reply.output_text == server.generated("Be short.a question", 7)
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (19, 7, 26)
    assert (reply.object, reply.store, reply.instructions, reply.error) == ("response", False, "Be short.", None)


def test_the_output_can_be_sent_again_as_input(client: Any) -> None:
    turns: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "a question"}]}]
    first = client.responses.create(model="m", input=turns, max_output_tokens=3)
    turns += [*first.output, {"role": "user", "content": "more"}]
    assert client.responses.create(model="m", input=turns, max_output_tokens=3).output_text


def test_a_stream_is_openais_sequence_of_events(server: LlmServer) -> None:
    reply = asked(server, input="streamed", stream=True)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    events = reply.named_events()
    assert all(name == data["type"] for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    names = [name for name, _ in events]
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(names[4:-4]) == {"response.output_text.delta"}
    assert names[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    text = server.generated("streamed", 5)
    assert "".join(data["delta"] for _, data in events[4:-4]) == text == events[-4][1]["text"]
    whole = events[-1][1]["response"]
    assert whole["output"] == [events[-2][1]["item"]]
    assert whole["output"][0]["content"][0]["text"] == text
    assert events[0][1]["response"]["output"] == []
    assert whole["usage"]["output_tokens"] == 5


def test_openais_client_reads_a_stream(server: LlmServer, client: Any) -> None:
    with client.responses.stream(model="m", input="to be read", max_output_tokens=9) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(texts) == server.generated("to be read", 9)


def test_every_parameter_reaches_the_model(server: LlmServer) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = {"format": {"type": "json_schema", "name": "it", "schema": schema, "strict": True}}
    assert asked(server, temperature=0.5, top_p=0.9, text=form).status == 200
    params = server.llm.added[-1][1].params
    assert (params.temperature, params.top_p, params.max_tokens) == (0.5, 0.9, 5)
    assert params.json_schema is not None
    assert asked(server, text={"format": {"type": "json_object"}}).status == 200
    assert server.llm.added[-1][1].params.json_schema == "{}"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 500}, "input"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_schema", "name": "it", "schema": {"title": "refuse"}}}}, "text"),
        ({"stream_options": {"include_obfuscation": False}, "stream": False}, "stream_options"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(server: LlmServer, given: dict[str, Any], param: str) -> None:
    reply = asked(server, **given)
    assert reply.status == 400, reply.body
    assert reply.json()["error"]["param"] == param


def test_what_is_so_anyway_may_be_said(server: LlmServer) -> None:
    given = {"store": False, "previous_response_id": None, "truncation": "disabled", "tools": [], "include": []}
    assert asked(server, **given, metadata={"a": "b"}, user="u", reasoning=None, text={}).status == 200


def test_a_failure_in_mid_stream_is_an_event(tmp_path: Path, monkeypatch: Any, openai: Any) -> None:
    with llm_server(tmp_path, monkeypatch, context_tokens=1 << 20) as server:
        with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            stream = client.responses.create(model="m", input="x", max_output_tokens=500_000, stream=True)
            next(stream)
            server.llm.broken = DeviceLost("the device is gone")
            last = list(stream)[-1]
        assert (last.type, last.response.status) == ("response.failed", "failed")
        assert "the device is gone" in last.response.error.message


def test_an_answer_without_a_token_is_an_empty_message_in_a_stream_as_well() -> None:
    asked = read_response(b'{"model": "m", "input": "x", "stream": true}')
    events = ResponseCall(asked, ModelFacts("m", ("text",), {}, 8)).events(1)
    written = events.begin() + events.more(0, Delta("", (), FinishReason.STOP)) + events.end(GenerationUsage(1, 0, 1))
    last = json.loads(written.rpartition(b"data: ")[2])
    assert last["type"] == "response.completed"
    assert [part["text"] for item in last["response"]["output"] for part in item["content"]] == [""]
