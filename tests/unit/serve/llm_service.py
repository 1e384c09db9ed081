"""A language model of arithmetic behind the real engine and the real HTTP server."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvloop
from fake_llm import SHAPE, FakeLlm, words_after

from twoshift.endpoints.known import told_openai
from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.errors import InvalidInput, TooLong
from twoshift.generation import FinishReason, GenerationRequest, TokenLogprob, ToolCallDelta, ToolChoice
from twoshift.llm_ports import Emitted, Prompt, Prompts, Step
from twoshift.policy.cost import CallCost
from twoshift.serve.deployments import Deployments
from twoshift.serve.front import add_faces
from twoshift.serve.http.app import App
from twoshift.serve.http.peers import HeadDecisions, HttpLimits
from twoshift.serve.http.server import HttpServer
from twoshift.serve.keys import Keys, KeySettings
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.service import Service
from twoshift.serve.settings import make_settings
from twoshift.serve.tenants import TenantSettings
from twoshift.server_services import ledger_for, services_for
from twoshift.types import Lane, LoadedAdapter

__all__ = ["LlmServer", "llm_server", "until"]

WAIT_S = 30.0  # against hangs


class GatedLlm(FakeLlm):
    """Each step waits for the gate; prompts may be tokens; a schema that says so is refused."""

    def __init__(self, context_tokens: int = SHAPE.context_tokens) -> None:
        super().__init__(replace(SHAPE, context_tokens=context_tokens, kv_tokens=4 * context_tokens))
        self.gate = threading.Event()
        self.gate.set()

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        made = list[Prompt]()
        for row in rows:
            given = row.prompt
            text = given if isinstance(given, str) else "".join(getattr(each, "content", "") for each in given)
            ids = tuple(map(ord, text)) or tuple(each for each in given if isinstance(each, int))
            left = self.shape.context_tokens - len(ids)
            if left < (row.params.max_tokens or 1):
                raise TooLong.of(self.shape.context_tokens, len(ids), row.params.max_tokens or 1)
            most = row.params.max_tokens or left
            made.append(Prompt(ids, row.params, most, request=row, adapter=row.adapter))
        return Prompts(tuple(made))

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        if "refuse" in (prompt.params.json_schema or ""):
            raise InvalidInput("json_schema", "its schema", "one that the model can keep to")
        super().add(key, prompt, live)

    def step(self, prefill_tokens: int | None = None) -> Step:
        self.gate.wait(WAIT_S)
        if not self.inside:
            time.sleep(0.001)
        asked = {key: each.prompt.params.logprobs for key, each in self.inside.items()}
        calling = {key: len(each.out) for key, each in self.inside.items() if _calls(each.prompt)}
        step = super().step(prefill_tokens)
        told = [self._told(each, asked[each.key]) for each in step.emitted]
        return replace(step, emitted=tuple(_called(each, calling.get(each.key)) for each in told))

    def _told(self, emitted: Emitted, count: int | None) -> Emitted:
        if count is None:
            return emitted
        likeliest = tuple((chr(97 + k), -1.0 - k) for k in range(count))
        logprobs = tuple(TokenLogprob(self.text_of([each]), -0.5, likeliest) for each in emitted.token_ids)
        return replace(emitted, logprobs=logprobs)


CALLS = (  # that it makes where it may, one in a step
    ToolCallDelta(0, '{"city": ', "call_1", "weather"),
    ToolCallDelta(0, '"Rome"}'),
    ToolCallDelta(1, "{}", "call_2", "clock"),
)


def _calls(prompt: Prompt) -> bool:
    use = None if prompt.request is None else prompt.request.tools
    return use is not None and use.choice is not ToolChoice.NONE


def _called(emitted: Emitted, before: int | None) -> Emitted:
    """The first token is said, those after it are calls; it stops by itself."""
    if before is None:
        return emitted
    finish = None if emitted.finish is None else FinishReason.STOP
    if before == 0:
        return replace(emitted, finish=finish)
    return replace(emitted, text="", finish=finish, tool_calls=CALLS[before - 1 : before])


@dataclass(slots=True)
class Got:
    """A reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Of a stream, as they were sent; the last one is a text."""
        pieces = self.body.decode().split("\n\n")
        assert pieces.pop() == ""
        assert all(each.startswith("data: ") for each in pieces)
        return [each[6:] if each == "data: [DONE]" else json.loads(each[6:]) for each in pieces]

    def named_events(self) -> list[tuple[str, Any]]:
        """Of a stream whose events have names."""
        pieces = self.body.decode().split("\n\n")
        assert pieces.pop() == ""
        found = [each.removeprefix("event: ").split("\ndata: ") for each in pieces]
        return [(name, json.loads(data)) for name, data in found]


class LlmServer:
    """The model `m`, on a port of its own, at 3.6 dollars an hour."""

    def __init__(
        self, llm: GatedLlm, home: Path, objective: LlmObjective, keys: Keys, adapters: Sequence[str] = ()
    ) -> None:
        self.llm = llm
        loaded = {name: LoadedAdapter(f"adapters/{name}", f"sha256:{name}") for name in adapters}
        llm.info = replace(llm.info, adapters=loaded)
        self.engine = LlmEngine(llm, CallCost(1e-5, 1e-6, per_row_s=1e-6), objective)
        self.served = ServedLlm("m", self.engine)
        self.service = Service(Deployments({"m": self.served}))
        self.service.models["m"].adapters = tuple(adapters)
        said = {"models": {"m": {"model": "m"}}, "database": f"sqlite:///{home}/fleet.db", "price_usd_per_hour": 3.6}
        settings = make_settings(said)
        self._keys = keys
        self.services = services_for(self.service.models, settings, keys, lambda _: None)
        self._usage, self._tenants = ledger_for(self.service.models, settings, keys, self.services)
        self._usage.start()
        self.services.start()
        self.port = 0
        self.server: Any = None
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.call(self._start)
        self.address = f"http://127.0.0.1:{self.port}"

    async def _start(self) -> None:
        self.service.start()
        app = App(told_openai, self._keys)
        limits, decisions = HttpLimits(half_closed_s=0.2), HeadDecisions(app.admit, app.streams)
        self.server = HttpServer(app.handle, app.refused, limits, decisions, sweep_s=0.02)
        add_faces(app, self.server, self.service, self.services, self._usage, [self._tenants])
        self.port = await self.server.start("127.0.0.1", 0)

    def generated(self, prompt: str, count: int, adapter: str = "") -> str:
        """What the model answers with so many tokens."""
        return self.llm.text_of(words_after([ord(each) for each in adapter + prompt], count))

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """On the server's loop."""
        return asyncio.run_coroutine_threadsafe(function(*given), self._loop).result(WAIT_S)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Got:
        """On a connection of its own; headers with _ for -."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, data, {name.replace("_", "-"): each for name, each in headers.items()})
            reply = connection.getresponse()
            return Got(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def chat(self, content: str = "hello", headers: dict[str, str] | None = None, **more: Any) -> Got:
        """One message to the model, with more of a request's fields."""
        body = {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 5, **more}
        return self.ask("POST", "/v1/chat/completions", body, **(headers or {}))

    def message(self, content: Any = "hello", headers: dict[str, str] | None = None, **more: Any) -> Got:
        """The same as Anthropic's clients ask it."""
        body = {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 5, **more}
        return self.ask("POST", "/v1/messages", body, **(headers or {}))

    def live(self) -> tuple[int, int]:
        """Live sequences that wait, and that run."""
        lane = self.engine.sequences().lanes[Lane.ONLINE]
        return lane.waiting, lane.running

    def metric(self, name: str, **labels: str) -> float:
        """One of its metrics, summed over the labels that are not said."""
        from prometheus_client.parser import text_string_to_metric_families

        page = self.ask("GET", "/metrics").body.decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def end(self) -> None:
        self.llm.gate.set()
        self.call(self.server.drain, 5.0)
        self.services.close(10.0)
        self._usage.close()
        self.service.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def llm_server(
    home: Path,
    monkeypatch: Any,
    *,
    context_tokens: int = 256,
    keys: dict[str, KeySettings] | None = None,
    tenants: dict[str, TenantSettings] | None = None,
    adapters: Sequence[str] = (),
    **objective: Any,
) -> Iterator[LlmServer]:
    """A server; the objective is a patient one unless it is said."""
    monkeypatch.setenv("TWOSHIFT_HOME", str(home))
    monkeypatch.setattr("twoshift.serve.ledger._KEEP_S", 0.02)
    monkeypatch.setattr("twoshift.store.database._BUSY_MS", 300_000)  # a stalled machine is no busy database
    for each in ("batches", "files", "message_batches"):
        monkeypatch.setattr(f"twoshift.serve.http.{each}._ANSWER_S", 300.0)
    patient = {"ttft_s": 60.0, "tpot_s": 10.0, **objective}
    known = Keys(keys or {}, tenants=tenants)
    made = LlmServer(GatedLlm(context_tokens), home, LlmObjective(**patient), known, adapters)
    try:
        yield made
    finally:
        made.end()


def until(holds: Callable[[], bool]) -> None:
    """Wait for it."""
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)
