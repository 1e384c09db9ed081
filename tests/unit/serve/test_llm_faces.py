"""Chat completions and completions over HTTP, by OpenAI's own client and by hand."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from fake_llm import words_after
from llm_service import LlmServer, llm_server, until

from twoshift.types import Lane

pytest.importorskip("httptools")


def said(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def test_openais_client_gets_the_next_turn_of_a_conversation(server: LlmServer, client: Any) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": "Be short."}, *said(parts)]
    reply = client.chat.completions.create(model="m", messages=messages, max_completion_tokens=7, temperature=0)
    assert reply.object == "chat.completion"
    assert reply.model == "m"
    [choice] = reply.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == server.generated("Be short.one\ntwo", 7)
    assert choice.finish_reason == "length"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (16, 7, 23)


def test_a_reply_can_be_sent_again_as_a_turn(client: Any) -> None:
    first = client.chat.completions.create(model="m", messages=said("a question"), max_tokens=3)
    messages = [*said("a question"), first.choices[0].message, *said("more")]
    assert client.chat.completions.create(model="m", messages=messages, max_tokens=3).choices


def test_a_prompt_that_began_alike_before_is_told_as_cached(client: Any) -> None:
    for expected in (0, 24):
        reply = client.chat.completions.create(model="m", messages=said("a preamble that is long"), max_tokens=2)
        assert reply.usage.prompt_tokens_details.cached_tokens in (expected, expected - 4)


def test_a_stream_has_the_role_then_text_then_the_end_then_what_it_took(server: LlmServer) -> None:
    reply = server.chat("streamed", stream=True, stream_options={"include_usage": True})
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["transfer-encoding"] == "chunked"
    assert {"x-request-id", "server-timing"} <= reply.headers.keys()
    *events, usage, done = reply.events()
    assert done == "[DONE]"
    assert len({each["id"] for each in [*events, usage]}) == 1
    assert all(each["object"] == "chat.completion.chunk" and each["usage"] is None for each in events)
    first, *middle, last = [each["choices"][0] for each in events]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert "".join(each["delta"]["content"] for each in middle) == server.generated("streamed", 5)
    assert all(each["finish_reason"] is None for each in [first, *middle])
    assert (last["delta"], last["finish_reason"]) == ({}, "length")
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5


def test_every_event_counts_the_tokens_so_far_where_that_is_wanted(server: LlmServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last, _ = server.chat("streamed", stream=True, stream_options=options).events()
    counts = [each["usage"]["completion_tokens"] for each in events]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] == last["usage"]["completion_tokens"] == 5
    assert {each["usage"]["prompt_tokens"] for each in events} == {len("streamed")}
    asked = {"model": "m", "prompt": ["p", "q"], "max_tokens": 4, "stream": True, "stream_options": options}
    *events, last, _ = server.ask("POST", "/v1/completions", asked).events()
    assert max(each["usage"]["completion_tokens"] for each in events) == 4  # of one choice, as vLLM counts it
    assert last["usage"]["completion_tokens"] == 8
    alone = server.chat(stream=True, stream_options={"continuous_usage_stats": True}).events()
    assert not any("usage" in each for each in alone[:-1])


def test_without_being_asked_no_event_speaks_of_usage(server: LlmServer) -> None:
    *events, done = server.chat(stream=True).events()
    assert done == "[DONE]"
    assert not any("usage" in each for each in events)


def test_openais_client_reads_a_stream(server: LlmServer, client: Any) -> None:
    stream = client.chat.completions.create(model="m", messages=said("to be read"), max_tokens=9, stream=True)
    chunks = list(stream)
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == server.generated("to be read", 9)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_openais_asynchronous_client_has_several_at_once(server: LlmServer, openai: Any) -> None:
    async def ask(text: str, made: Any) -> str:
        stream = await made.chat.completions.create(model="m", messages=said(text), max_tokens=6, stream=True)
        return "".join([each.choices[0].delta.content or "" async for each in stream])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none") as made:
            return await asyncio.gather(*(ask(text, made) for text in "abcd"))

    assert asyncio.run(all_of_them()) == [server.generated(text, 6) for text in "abcd"]


def test_a_stream_to_an_old_client_ends_with_its_connection(server: LlmServer) -> None:
    body = json.dumps({"model": "m", "messages": said("old"), "max_tokens": 3, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as made:
        made.sendall(head + body)
        found = b""
        while piece := made.recv(65536):
            found += piece
    top, _, rest = found.partition(b"\r\n\r\n")
    assert b"chunked" not in top
    assert rest.endswith(b"data: [DONE]\n\n")


def test_completions_continue_texts_and_tokens(server: LlmServer, client: Any) -> None:
    reply = client.completions.create(model="m", prompt=["one", "other"], max_tokens=4)
    assert [each.text for each in reply.choices] == [server.generated(each, 4) for each in ("one", "other")]
    assert [each.index for each in reply.choices] == [0, 1]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (8, 8)
    tokens = client.completions.create(model="m", prompt=[3, 1, 2], max_tokens=4)
    assert tokens.choices[0].text == server.llm.text_of(words_after([3, 1, 2], 4))
    assert client.completions.create(model="m", prompt="x").usage.completion_tokens == 16


def test_completions_stream(server: LlmServer, client: Any) -> None:
    stream = client.completions.create(model="m", prompt=["p", "q"], max_tokens=4, stream=True)
    texts, ends = {0: "", 1: ""}, {}
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason
    assert texts == {0: server.generated("p", 4), 1: server.generated("q", 4)}
    assert ends == {0: "length", 1: "length"}


def test_several_answers_are_counted_with_one_prompt(client: Any) -> None:
    reply = client.chat.completions.create(model="m", messages=said("thrice"), max_tokens=3, n=3, seed=5)
    assert [each.index for each in reply.choices] == [0, 1, 2]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (6, 9)
    stream = client.chat.completions.create(model="m", messages=said("twice"), max_tokens=3, n=2, stream=True)
    ended = [each.choices[0].index for each in stream if each.choices[0].finish_reason]
    assert sorted(ended) == [0, 1]


def test_every_parameter_reaches_the_model(server: LlmServer) -> None:
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 11, "presence_penalty": 0.25, "min_p": 0.1}
    given |= {"frequency_penalty": -0.5, "repetition_penalty": 1.5, "ignore_eos": True}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}
    assert (
        server.chat(
            "everything", stop=["zzz", "yyy"], response_format=form, logit_bias={"5": -100, "7": 2}, **given
        ).status
        == 200
    )
    params = server.llm.added[-1][1].params
    assert {name: getattr(params, name) for name in given} == given
    assert params.stop == ("zzz", "yyy")
    assert params.logit_bias == ((5, -100.0), (7, 2.0))
    assert json.loads(params.json_schema or "") == schema
    assert server.chat(response_format={"type": "json_object"}, stop="q").status == 200
    assert server.llm.added[-1][1].params.json_schema == "{}"


def test_a_stop_string_ends_it_and_is_not_told(server: LlmServer, client: Any) -> None:
    text = server.generated("stop here", 6)
    reply = client.chat.completions.create(model="m", messages=said("stop here"), max_tokens=6, stop=text[2])
    assert reply.choices[0].message.content == text[: text.index(text[2])]
    assert reply.choices[0].finish_reason == "stop"


def test_how_likely_each_token_was(server: LlmServer, client: Any) -> None:
    asked = {"model": "m", "messages": said("likely"), "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    told = client.chat.completions.create(**asked).choices[0].logprobs.content
    text = server.generated("likely", 3)
    assert "".join(each.token for each in told) == text
    assert told[0].bytes == [*text[0].encode()]
    assert [each.token for each in told[0].top_logprobs] == ["a", "b"]
    streamed = [each.choices[0].logprobs for each in client.chat.completions.create(**asked, stream=True)]
    assert "".join(each.content[0].token for each in streamed if each) == text
    older = client.completions.create(model="m", prompt="likely", max_tokens=3, logprobs=1).choices[0].logprobs
    assert older.text_offset == [0, 1, 2]
    assert older.top_logprobs[0] == {"a": -1.0}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"frobnicate": 1}, "frobnicate"),
        ({"logit_bias": {"a word": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias[...]"),
        ({"logit_bias": {str(k): 1 for k in range(1025)}}, "logit_bias"),
        ({"min_p": 1.5}, "min_p"),
        ({"messages": said([{"type": "image_url", "image_url": {"url": "x"}}])}, "messages[0].content[0].type"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "x", "mood": "bad"}]}, "messages[0].mood"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"modalities": ["text", "audio"]}, "modalities[1]"),
        ({"top_k": -2}, "top_k"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"messages": [{"role": "pirate", "content": "x"}]}, "messages[0].role"),
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"n": 0}, "n"),
        ({"store": True}, "store"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"stop": [""]}, "stop[0]"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(server: LlmServer, given: dict[str, Any], param: str) -> None:
    reply = server.chat(**given)
    assert reply.status == 400, reply.body
    error = reply.json()["error"]
    assert error["param"] == param
    assert param in error["message"]


@pytest.mark.parametrize(
    "given",
    [
        dict.fromkeys(("parallel_tool_calls", "logit_bias", "ignore_eos", "frobnicate", "n", "tools", "store")),
        {"store": False, "service_tier": "auto", "parallel_tool_calls": True, "n": 1, "logprobs": False},
        {"service_tier": "default", "parallel_tool_calls": False, "store": None, "other": None},
        {"tools": [], "tool_choice": "none", "functions": [], "function_call": "none"},
        {"top_k": -1, "min_p": 0.0, "min_tokens": 0},
        {"top_k": 0, "min_p": 0},
        {"metadata": {"trace": "7"}, "prompt_cache_key": "k", "safety_identifier": "s", "modalities": ["text"]},
        {"tool_choice": "auto", "messages": [{"role": "user", "content": "x", "name": "bob"}]},
    ],
)  # fmt: skip
def test_a_null_is_nothing_and_what_is_so_anyway_may_be_said(server: LlmServer, given: dict[str, Any]) -> None:
    reply = server.chat(**given)
    assert reply.status == 200, reply.body
    assert server.chat(**given, best_of=1).json()["error"]["param"] == "best_of"


def test_of_completions_too(server: LlmServer) -> None:
    wrong = {"echo": True, "suffix": "x", "best_of": 2, "prompt": [], "messages": []}
    for param, given in wrong.items():
        reply = server.ask("POST", "/v1/completions", {"model": "m", "prompt": "x", param: given})
        assert (reply.status, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(("prompt", "param"), [([[]], "prompt[0]"), ([-1], "prompt[0]"), (["a", 3], "prompt[1]")])
def test_what_is_wrong_inside_a_prompt_is_told_with_its_name(server: LlmServer, prompt: Any, param: str) -> None:
    reply = server.ask("POST", "/v1/completions", {"model": "m", "prompt": prompt})
    assert (reply.status, reply.json()["error"]["param"]) == (400, param)


def test_turns_count_although_nothing_is_said_in_them(server: LlmServer) -> None:
    empty = {"role": "user", "content": ""}
    reply = server.chat(messages=[empty] * 300)
    assert (reply.status, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    reply = server.chat(messages=[empty] * 2049)
    assert (reply.status, reply.json()["error"]["param"]) == (400, "messages")


def test_what_the_engine_refuses_is_an_error_of_the_request_also_where_it_streams(server: LlmServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"title": "refuse"}}}
    for stream in (False, True):
        reply = server.chat(response_format=form, stream=stream)
        assert (reply.status, reply.json()["error"]["param"]) == (400, "response_format")


def test_a_prompt_and_answer_that_never_fit_are_told_as_openai_does(server: LlmServer) -> None:
    for size, most, requested in ((300, 5, "305"), (200, 100, "300"), (20_000, 5, "at least 318")):
        reply = server.chat("x" * size, max_tokens=most)
        error = reply.json()["error"]
        assert (reply.status, error["type"]) == (400, "invalid_request_error")
        assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
        words = f"This model's maximum context length is 256 tokens. However, you requested {requested} tokens ("
        assert error["message"].startswith(words)
        assert "context_length_exceeded" in error["message"]  # which is all that LangChain can see
        completion = server.ask("POST", "/v1/completions", {"model": "m", "prompt": "x" * size, "max_tokens": most})
        assert (completion.status, completion.json()["error"]["param"]) == (400, "prompt")


def test_other_models_and_unknown_ones(server: LlmServer) -> None:
    assert server.chat(model="other").status == 404
    reply = server.ask("POST", "/v1/embeddings", {"model": "m", "input": "x"})
    assert (reply.status, reply.json()["error"]["param"]) == (400, "model")


def test_it_is_listed_described_and_ready(server: LlmServer, client: Any) -> None:
    assert [each.id for each in client.models.list()] == ["m"]
    assert server.ask("GET", "/readyz").status == 200
    derived = server.ask("GET", "/v1/derived/m").json()
    assert derived["kind"] == "sequences"
    assert derived["ttft_s"] == 60.0
    assert 1 <= derived["sequences"] <= server.llm.shape.max_sequences
    assert 1 <= derived["prompt_tokens"] < derived["context_tokens"] == 256


def test_sequences_are_counted_under_our_names_and_under_vllms(server: LlmServer) -> None:
    before = server.metric("vllm:generation_tokens_total", model_name="m")
    ended = server.metric("twoshift_ttft_seconds_count", model="m", lane="online")
    kept = server.metric("twoshift_slo_requests_total", model="m", slo="within")
    assert server.chat("to be counted").status == 200
    assert server.metric("twoshift_slo_requests_total", model="m", slo="within") == kept + 1
    assert server.metric("twoshift_objective_seconds", model="m", of="ttft") == 60.0
    assert server.metric("vllm:generation_tokens_total", model_name="m") == before + 5
    assert server.metric("twoshift_ttft_seconds_count", model="m", lane="online") == ended + 1
    assert server.metric("vllm:time_to_first_token_seconds_count", model_name="m") == ended + 1
    for name in ("num_requests_waiting", "num_requests_running"):
        assert server.metric(f"vllm:{name}", model_name="m") == 0
    page = server.ask("GET", "/metrics").body.decode()
    names = """vllm:kv_cache_usage_perc vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total
        vllm:e2e_request_latency_seconds_bucket vllm:request_success_total twoshift_tpot_seconds_bucket
        twoshift_kv_use_ratio twoshift_preemptions_total twoshift_running_sequences"""
    for name in names.split():
        assert name in page


def test_a_stream_is_counted_once_at_its_end(server: LlmServer) -> None:
    before = server.metric("twoshift_requests_total", model="m", status="200")
    assert server.chat("counted", stream=True).status == 200
    until(lambda: server.metric("twoshift_requests_total", model="m", status="200") == before + 1)


def test_a_client_that_hangs_up_in_mid_stream_frees_its_sequence(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch, context_tokens=1 << 20) as server:
        body = {"model": "m", "messages": said("forever"), "max_tokens": 500_000, "stream": True}
        data = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as made:
            made.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data
            )
            while b"content" not in made.recv(65536):
                pass
            assert server.live() == (0, 1)
        until(lambda: server.live() == (0, 0))
        until(lambda: not server.llm.inside)
        until(lambda: server.metric("twoshift_requests_total", model="m", status="499") == 1)
        assert server.metric("twoshift_refusals_total", model="m", reason="client_gone") == 1


@pytest.mark.slow
def test_one_that_hangs_up_before_the_first_token_frees_it_too(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch) as server:
        server.llm.gate.clear()
        for stream in (False, True):
            data = json.dumps({"model": "m", "messages": said("x"), "stream": stream}).encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=120) as made:
                made.sendall(
                    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data
                )
                until(lambda: server.live() == (1, 0))
            until(lambda: server.live() == (0, 0))


@pytest.mark.slow
def test_a_reader_that_stops_reading_costs_no_memory_and_is_left(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch, context_tokens=1 << 20) as server:
        body = {"model": "m", "messages": said("forever"), "max_tokens": 20_000, "stream": True}
        data = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data
            )
            until(lambda: server.engine.stats().lanes[Lane.ONLINE].rows == 1)
            [connection] = server.server.peers.open
            assert connection.transport.get_write_buffer_size() < 1 << 20
        until(lambda: not server.server.peers.open)


def test_a_first_token_that_would_come_too_late_is_refused_with_a_time(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch, ttft_s=1e-4) as server:
        server.llm.gate.clear()
        held = server.engine.stream(server.llm.prepare([_row("x" * 200)]).prompts[0])
        reply = server.chat("y" * 200)
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "first token" in reply.json()["error"]["message"]
        assert server.metric("twoshift_refused_rows_total", model="m") == 1
        patient = server.chat("y" * 200, {"x_request_timeout_ms": "50"})
        assert patient.status == 504
        held.cancel()


def test_a_stream_that_would_slow_others_down_is_refused_with_a_time(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch, tpot_s=1.5e-5) as server:  # two sequences take 14 us, three 16
        assert server.ask("GET", "/v1/derived/m").json()["live_streams"] == 2
        server.llm.gate.clear()
        held = [server.engine.stream(server.llm.prepare([_row(each)]).prompts[0]) for each in "ab"]
        reply = server.chat(headers={"x_request_timeout_ms": "60000"})  # time enough for a first token
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "at most 2 can run without missing their objective" in reply.json()["error"]["message"]
        for each in held:
            each.cancel()


def test_only_so_many_may_wait(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch, max_waiting=2) as server:
        server.llm.gate.clear()
        held = [server.engine.stream(server.llm.prepare([_row(each)]).prompts[0]) for each in "ab"]
        reply = server.chat()
        assert reply.status == 503
        assert "retry-after" in reply.headers
        for each in held:
            each.cancel()
        server.llm.gate.set()
        assert server.chat().status == 200
        assert server.chat(n=3).status == 413


def test_a_failure_in_mid_stream_is_told_in_the_stream(tmp_path: Path, monkeypatch: Any, openai: Any) -> None:
    from twoshift.errors import DeviceLost

    with llm_server(tmp_path, monkeypatch, context_tokens=1 << 20) as server:
        with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(model="m", messages=said("x"), max_tokens=500_000, stream=True)
            next(stream)
            server.llm.broken = DeviceLost("the device is gone")
            with pytest.raises(openai.APIError, match="the device is gone"):
                for _ in stream:
                    pass
        until(lambda: server.ask("GET", "/readyz").status == 503)


def test_a_server_that_drains_finishes_its_streams(tmp_path: Path, monkeypatch: Any) -> None:
    with llm_server(tmp_path, monkeypatch) as server:
        server.llm.gate.clear()
        data = json.dumps({"model": "m", "messages": said("x"), "max_tokens": 50, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as made:
            made.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data
            )
            until(lambda: server.live() == (1, 0))
            server.service.drain()
            ended = asyncio.run_coroutine_threadsafe(server.server.drain(30.0), server._loop)
            server.llm.gate.set()
            found = b""
            while piece := made.recv(65536):
                found += piece
            assert ended.result(120)
        assert found.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_key_holds_its_place_until_its_stream_ends(tmp_path: Path, monkeypatch: Any, openai: Any) -> None:
    from twoshift.serve.keys import KeySettings, digest_of

    keys = {"one": KeySettings(sha256=digest_of("ts-one"), concurrency=1)}
    with llm_server(tmp_path, monkeypatch, keys=keys, context_tokens=1 << 20) as server:
        assert server.chat().status == 401
        assert server.chat(headers={"x_api_key": "ts-one"}).status == 200
        client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="ts-one", max_retries=0)
        stream = client.chat.completions.create(model="m", messages=said("x"), max_tokens=500_000, stream=True)
        next(stream)
        assert server.chat(headers={"authorization": "Bearer ts-one"}).status == 429
        stream.close()
        client.close()
        until(lambda: server.chat(headers={"authorization": "Bearer ts-one"}).status == 200)


def _row(text: str) -> Any:
    from twoshift.generation import GenerationParams, GenerationRequest

    return GenerationRequest(text, GenerationParams(max_tokens=5))
