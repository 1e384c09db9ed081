"""Anthropic's messages over HTTP, by Anthropic's own client and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llm_service import LlmServer, llm_server, until

from twoshift.errors import DeviceLost
from twoshift.serve.keys import KeySettings, digest_of

pytest.importorskip("httptools")
MESSAGES: Any = [{"role": "user", "content": "a question"}]


def test_anthropics_client_gets_the_next_turn(server: LlmServer, claude: Any) -> None:
    system = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    reply = claude.messages.create(model="m", max_tokens=7, system=system, messages=MESSAGES)
    assert (reply.type, reply.role, reply.model) == ("message", "assistant", "m")
    [block] = reply.content
    assert (block.type, block.text) == ("text", server.generated("Be short.a question", 7))
    assert (reply.stop_reason, reply.stop_sequence) == ("max_tokens", None)
    assert reply.usage.output_tokens == 7
    assert reply.usage.input_tokens + reply.usage.cache_read_input_tokens == len("Be short.a question")


def test_a_reply_can_be_sent_again_as_a_turn(claude: Any) -> None:
    first = claude.messages.create(model="m", max_tokens=3, messages=MESSAGES)
    turns = [*MESSAGES, {"role": "assistant", "content": first.content}, *MESSAGES]
    assert claude.messages.create(model="m", max_tokens=3, messages=turns).content


def test_a_stream_is_anthropics_sequence_of_events(server: LlmServer) -> None:
    reply = server.message("streamed", stream=True)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    events = reply.named_events()
    assert all(name == data["type"] for name, data in events)
    (_, first), (_, opened), *deltas, (_, closed), (_, ended), (last, _) = events
    assert first["type"] == "message_start"
    assert (first["message"]["content"], first["message"]["stop_reason"]) == ([], None)
    assert first["message"]["usage"]["input_tokens"] == len("streamed")
    assert opened == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert {name for name, _ in deltas} == {"content_block_delta"}
    assert "".join(data["delta"]["text"] for _, data in deltas) == server.generated("streamed", 5)
    assert closed == {"type": "content_block_stop", "index": 0}
    assert ended["type"] == "message_delta"
    assert ended["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert ended["usage"]["output_tokens"] == 5
    assert last == "message_stop"


def test_anthropics_client_reads_a_stream(server: LlmServer, claude: Any) -> None:
    with claude.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert text == server.generated("a question", 9) == whole.content[0].text
    assert (whole.stop_reason, whole.usage.output_tokens) == ("max_tokens", 9)


def test_the_stop_sequence_that_was_hit_is_told_whole_and_streamed(server: LlmServer, claude: Any) -> None:
    text = server.generated("a question", 6)
    asked = {"model": "m", "max_tokens": 6, "messages": MESSAGES, "stop_sequences": [text[2], "zzz"]}
    reply = claude.messages.create(**asked)
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", text[2])
    assert reply.content[0].text == text[: text.index(text[2])]
    with claude.messages.stream(**asked) as stream:
        assert stream.get_final_message().stop_sequence == text[2]


def test_every_parameter_reaches_the_model(server: LlmServer) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = {"format": {"type": "json_schema", "schema": schema}}
    reply = server.message(temperature=0.5, top_p=0.9, top_k=7, stop_sequences=["zzz"], output_config=form)
    assert reply.status == 200, reply.body
    params = server.llm.added[-1][1].params
    assert (params.temperature, params.top_p, params.top_k, params.stop) == (0.5, 0.9, 7, ("zzz",))
    assert params.json_schema is not None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking.type"),
        ({"container": "x"}, "container"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"messages": []}, "messages"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "It is"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"title": "refuse"}}}}, "output_config"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(server: LlmServer, given: dict[str, Any], field: str) -> None:
    for stream in (False, True):
        reply = server.message(**given, stream=stream)
        assert reply.status == 400, reply.body
        told = reply.json()
        assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
        assert field in told["error"]["message"]


def test_what_changes_no_answer_may_be_said(server: LlmServer) -> None:
    given = {"metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "disabled"}, "tools": None}
    assert server.message(**given, stream=False, cache_control={"type": "ephemeral"}).status == 200


def test_errors_are_anthropics_own_classes(claude: Any, anthropic: Any) -> None:
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="other", max_tokens=3, messages=MESSAGES)
    with pytest.raises(anthropic.BadRequestError, match="context"):
        claude.messages.create(model="m", max_tokens=300, messages=MESSAGES)


def test_it_is_admitted_counted_and_keyed_as_every_request_is(tmp_path: Path, monkeypatch: Any) -> None:
    keys = {"mine": KeySettings(sha256=digest_of("secret"))}
    with llm_server(tmp_path, monkeypatch, keys=keys, max_waiting=2) as server:
        assert server.message().status == 401
        assert server.message().json()["error"]["type"] == "authentication_error"
        known = {"x_api_key": "secret"}
        assert server.message("counted", known).status == 200
        streamed = server.message("counted", known, stream=True)
        assert streamed.named_events()[-1][0] == "message_stop"
        server.llm.gate.clear()
        late = server.message("late", {**known, "x_request_timeout_ms": "50"})
        assert (late.status, late.json()["error"]["type"]) == (504, "timeout_error")
        held = [server.engine.stream(server.llm.prepare([_row(each)]).prompts[0]) for each in "ab"]
        full = server.message("full", known)
        assert (full.status, full.json()["error"]["type"]) == (503, "overloaded_error")
        assert "retry-after" in full.headers
        for each in held:
            each.cancel()


def test_a_failure_in_mid_stream_is_an_event(tmp_path: Path, monkeypatch: Any, anthropic: Any) -> None:
    with llm_server(tmp_path, monkeypatch, context_tokens=1 << 20) as server:
        with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as client:
            stream = client.messages.create(model="m", max_tokens=500_000, messages=MESSAGES, stream=True)
            next(stream)
            server.llm.broken = DeviceLost("gone")
            with pytest.raises(anthropic.APIStatusError, match="gone"):
                list(stream)
        until(lambda: server.metric("twoshift_requests_total", model="m", status="500") == 1)


def _row(text: str) -> Any:
    from twoshift.generation import GenerationRequest

    return GenerationRequest(text)
