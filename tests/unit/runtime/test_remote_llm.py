"""A language model on another server, over real connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from twoshift.engine.llm import LlmEngine
from twoshift.errors import InvalidInput, TryLater
from twoshift.generation import (
    GenerationParams,
    GenerationRequest,
    Message,
    Tool,
    ToolCall,
    ToolChoice,
    ToolUse,
    joined_calls,
)
from twoshift.policy.cost import CallCost
from twoshift.runtime.llm import LlmOptions, is_llm, load_llm
from twoshift.serve.settings import make_settings
from twoshift.types import Lane
from twoshift.wiring.backends import live_model


class Handler(BaseHTTPRequestHandler):
    """Answers with the words of the question, one a piece."""

    asked: ClassVar[list[dict[str, Any]]] = []
    hold = threading.Event()
    hung_up = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(b'vllm:kv_cache_usage_perc{engine="0"} 0.25\n')
        elif self.path == "/v1/models":
            self._send(json.dumps({"data": [{"id": "echo", "max_model_len": 512}, {"id": "other"}]}).encode())
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Handler.asked.append(body)
        text = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        text = text if isinstance(text, str) else " ".join(map(str, text))
        if text == "refuse":
            self.send_error(400, "no")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for piece in ({"id": "id", "function": {"name": "weather"}}, {"function": {"arguments": "{}"}}):
                if "tools" in body:
                    self._event({"choices": [{"delta": {"tool_calls": [{"index": 0, **piece}]}}]})
            for word in text.split():
                self._event({"choices": [{"delta": {"content": word}, "text": word, "finish_reason": None}]})
                if word == "hold":
                    Handler.hold.wait(60)
                    for _ in range(10_000):
                        self._event({"choices": []})
            self._event({"choices": [{"delta": {}, "text": "", "finish_reason": "stop"}]})
            usage = {"prompt_tokens": 11, "completion_tokens": 22, "prompt_tokens_details": {"cached_tokens": 5}}
            self._event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            Handler.hung_up.set()

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called there
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Handler.asked, Handler.hold, Handler.hung_up = [], threading.Event(), threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        Handler.hold.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def engine(address: str) -> Iterator[LlmEngine]:
    runtime = load_llm(f"{address}#echo")
    with LlmEngine(runtime, CallCost.line(0.01, 0.001)) as made:
        yield made


def asked(text: str, **params: Any) -> GenerationRequest:
    return GenerationRequest((Message("user", text),), GenerationParams(**params))


def test_an_address_is_a_language_model_and_says_its_context(address: str) -> None:
    assert is_llm(f"{address}#echo")
    runtime = load_llm(f"{address}#echo", LlmOptions(max_sequences=3))
    assert (runtime.shape.context_tokens, runtime.shape.max_sequences) == (512, 3)
    runtime.close()


def test_a_model_that_is_not_there_and_a_server_that_is_not_are_told(address: str) -> None:
    with pytest.raises(InvalidInput, match="echo, other"):
        load_llm(f"{address}#another")
    with pytest.raises(TryLater):
        load_llm("http://127.0.0.1:9/v1#echo")


def test_streams_and_blocks_are_answered_with_the_servers_own_counts(engine: LlmEngine) -> None:
    rows = engine.runtime.prepare([asked(f"a{k} b c", seed=4, max_tokens=9) for k in range(5)])
    block = engine.submit_block(rows)
    stream = engine.stream(engine.runtime.prepare([GenerationRequest("x y")]).prompts[0])
    assert stream.text() == "xy"
    assert stream.finished is not None
    assert stream.finished.usage.completion_tokens == 22
    result = block.result(60)
    assert result.columns["text"].tolist() == [f"a{k}bc" for k in range(5)]
    assert (result.output_tokens, result.cached_tokens) == (110, 25)
    chat = [body for body in Handler.asked if "messages" in body]
    assert {(body["seed"], body["max_tokens"], body["model"]) for body in chat} == {(4, 9, "echo")}
    assert engine.sequences().kv_use == 0.25


def test_tokens_and_what_only_some_servers_know_are_sent_on(engine: LlmEngine) -> None:
    params = GenerationParams(top_k=3, min_p=0.2, logit_bias=((7, -1.5),), repetition_penalty=1.5, ignore_eos=True)
    rows = [GenerationRequest((5, 6, 7), params), GenerationRequest("plain")]
    for prompt in engine.runtime.prepare(rows).prompts:
        engine.stream(prompt).text()
    tokens, plain = (next(body for body in Handler.asked if body["prompt"] == each) for each in ([5, 6, 7], "plain"))
    sent = {"top_k": 3, "min_p": 0.2, "logit_bias": {"7": -1.5}, "repetition_penalty": 1.5, "ignore_eos": True}
    assert sent.items() <= tokens.items()
    assert not sent.keys() & plain.keys()


def test_tools_are_sent_on_and_calls_come_back(engine: LlmEngine) -> None:
    use = ToolUse((Tool("weather", "Of a city.", '{"type": "object"}'),), ToolChoice.NAMED, "weather")
    turns = (
        Message("user", "x"),
        Message("assistant", "", (ToolCall("c", "f", "{}"),)),
        Message("tool", "call", tool_call_id="c"),
    )
    [prompt] = engine.runtime.prepare([GenerationRequest(turns, tools=use)]).prompts
    deltas = list(engine.stream(prompt))
    assert joined_calls(each for delta in deltas for each in delta.tool_calls) == (ToolCall("id", "weather", "{}"),)
    body = Handler.asked[-1]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert body["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert body["messages"][2]["tool_call_id"] == "c"


def test_what_the_server_refuses_fails_alone(engine: LlmEngine) -> None:
    result = engine.submit_block(engine.runtime.prepare([asked("refuse"), asked("fine")])).result(60)
    assert isinstance(result.errors[0], InvalidInput)
    assert result.columns["text"][1] == "fine"


def test_a_reader_who_hangs_up_hangs_up_on_the_server(engine: LlmEngine) -> None:
    stream = engine.stream(engine.runtime.prepare([asked("hold on")]).prompts[0])
    assert next(iter(stream)).text == "hold"
    stream.cancel()
    while engine.sequences().lanes[Lane.ONLINE].running:
        pass
    engine.stream(engine.runtime.prepare([asked("next")]).prompts[0]).text()  # the loop has come round
    Handler.hold.set()
    assert Handler.hung_up.wait(60)


REMOTE = "http://127.0.0.1:1/v1#m"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"replicas": 2}, "replicas: 2 "),
        ({"max_replicas": 2}, "max_replicas: 2 "),
        ({"min_replicas": 2, "max_replicas": 3}, "min_replicas: 2 "),
    ],
)
def test_a_model_on_another_server_has_one_process_here(given: dict[str, Any], said: str) -> None:
    settings = make_settings({"models": {"m": {"model": REMOTE, **given}}})
    with pytest.raises(InvalidInput, match=rf"^{said}.* expected 1: .* another server, which has its own replicas"):
        live_model("m", settings, lambda _: None)


def test_a_model_on_another_server_is_not_asked_from_ray() -> None:
    settings = make_settings({"models": {"m": {"model": REMOTE}}, "engine": "ray"})
    with pytest.raises(InvalidInput, match=r"^engine: 'ray' .* expected local: .* another server"):
        live_model("m", settings, lambda _: None)
