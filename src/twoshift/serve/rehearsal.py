"""Requests before the first client's, so that what live requests cost beside their steps is known at the start.

A runtime that is measured alone does not show what its caller does between two steps: requests are read, prepared,
admitted, let in and answered by the same interpreter, and the next step waits for it. So a server of its own is asked
over HTTP for a moment, as clients will ask the real one, and the engine learns from its steps.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from twoshift.endpoints.known import told_openai
from twoshift.engine.llm.measure import PromptIds
from twoshift.errors import TryLater
from twoshift.generation import GenerationParams, GenerationRequest
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.generation import Conversation, fitting_sequences, generation_rate
from twoshift.serve.deployments import Deployments
from twoshift.serve.http.app import App
from twoshift.serve.http.generation import add_generation
from twoshift.serve.http.peers import HeadDecisions, HttpLimits
from twoshift.serve.http.server import HttpServer
from twoshift.serve.keys import Keys
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.llm.running import Running
from twoshift.serve.llm_derived import typical_request
from twoshift.serve.service import Service
from twoshift.types import CallSize, Lane

__all__ = ["Rehearsed", "rehearse"]

_HOST, _MODEL = "127.0.0.1", "rehearsed"
_SHORTEST = 8  # tokens of a prompt
_STEPS = 200  # at the most, once everybody has a first token
_STEPS_A_REQUEST = 3  # until its reply is there and the next one is asked
_FILL_SHARE = 0.4  # of the time: reading the first prompts
_STREAMED_SHARE = 0.5  # as long as whole answers
_TIMEOUT_S = 600.0
_LOOK_S = 0.01
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Who asks: clients with typical prompts, and so many that share one and fill the rest of the device."""

    clients: int
    standing: int
    asked: Conversation
    answer_tokens: int  # so that as many prompts come in a step as if all were clients
    model: str  # or an adapter of it: a step with one takes longer than a step without
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What live requests cost."""

    live_cost: CallCost | None  # steps of theirs alone, with whole answers; None: none was seen
    stream_token_s: float  # that a token takes longer where it is streamed


class _Took(NamedTuple):
    """A stretch of steps."""

    steps: float
    seconds: float
    output_tokens: float
    prompt_tokens: float


async def rehearse(served: ServedLlm, seconds: float) -> Rehearsed:
    """As many typical requests at once as its objective allows, whole for so long at the most, then streamed.

    Nobody else asks it.
    """
    crowd, ids = _crowd(served, seconds), PromptIds(served.engine.runtime.shape.vocabulary)
    standing = list[Running]()
    try:
        async with _listening(served, crowd.clients) as port:
            before = ids.next(_context_tokens(served, crowd)) if crowd.standing else ()
            begun = [await _begun(served, (*before, *ids.next(_SHORTEST))) for _ in range(crowd.standing)]
            standing += [each for each in begun if each is not None]
            await _asked(served, port, crowd, ids, seconds)
            _, cost = served.engine.learned_costs()
            took = await _asked(served, port, replace(crowd, streams=True), ids, _STREAMED_SHARE * seconds)
    finally:
        for each in standing:
            each.close()
        await asyncio.to_thread(served.engine.drain)
    step_tokens = served.engine.runtime.shape.step_tokens
    return Rehearsed(cost, 0.0 if cost is None else _stream_token_s(cost, crowd, took, step_tokens))


async def _asked(served: ServedLlm, port: int, crowd: _Crowd, ids: PromptIds, seconds: float) -> _Took:
    """So long at the most; what was seen once everybody had a first token."""
    until_s = time.monotonic() + seconds
    asking = [asyncio.create_task(_client(port, at, crowd, ids)) for at in range(crowd.clients)]
    try:
        await _first_tokens(served, crowd.clients, until_s - (1 - _FILL_SHARE) * seconds)
        before = _so_far(served)
        await _steps(served, _STEPS, until_s)
        return _Took(*(now - then for now, then in zip(_so_far(served), before, strict=True)))
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _so_far(served: ServedLlm) -> _Took:
    now = served.sequences()
    live = now.lanes[Lane.ONLINE]
    return _Took(now.steps, now.busy_s, live.output_tokens, live.prompt_tokens)


def _stream_token_s(cost: CallCost, crowd: _Crowd, took: _Took, step_tokens: int) -> float:
    """What a token took beyond what whole answers would have taken in as many steps."""
    prompts = took.prompt_tokens / crowd.asked.prompt_tokens
    if prompts < 1 or took.output_tokens < took.steps:
        return 0.0
    seen = Conversation(crowd.asked.prompt_tokens, max(1.0, took.output_tokens / prompts))
    whole = generation_rate(cost, seen, max(1, round(took.output_tokens / took.steps)), step_tokens)
    return max(0.0, took.seconds / took.output_tokens - 1 / whole.output_tokens_per_s)


def _crowd(served: ServedLlm, seconds: float) -> _Crowd:
    """A device that is too slow to read everybody's prompt in a part of the time has fewer clients."""
    shape, curve = served.engine.runtime.shape, served.engine.curves.alone
    asked = typical_request((), shape.context_tokens)
    many = min(served.derived.sequences, fitting_sequences(shape.kv_tokens, asked, shape.max_sequences))
    read_s = asked.prompt_tokens / shape.step_tokens * curve.seconds(CallSize.of([shape.step_tokens]))
    least = _STEPS_A_REQUEST * math.ceil(many / asked.answer_tokens)
    clients = min(many, max(least, int(_FILL_SHARE * seconds / read_s)))
    return _Crowd(
        clients,
        many - clients,
        asked,
        max(2, round(asked.answer_tokens * clients / many)),
        next(iter(served.info.adapters), _MODEL),
    )


@asynccontextmanager
async def _listening(served: ServedLlm, clients: int) -> AsyncIterator[int]:
    """A port of this machine where it alone is served, until the end."""
    service, app = Service(Deployments({_MODEL: served})), App(told_openai, Keys({}))
    service.models[_MODEL].adapters = tuple(served.info.adapters)
    service.start()
    add_generation(app, service)
    limits = HttpLimits(connections=2 * clients, address_connections=2 * clients)
    server = HttpServer(app.handle, app.refused, limits, HeadDecisions(app.admit, app.streams))
    port = await server.start(_HOST, 0)
    try:
        yield port
    finally:
        await server.drain(0.0)


async def _client(port: int, at: int, crowd: _Crowd, ids: PromptIds) -> None:
    """Its first answer is short by its place, so that answers end one after the other from the beginning."""
    reader, writer = await asyncio.open_connection(_HOST, port)
    first = 2 + at * crowd.answer_tokens // crowd.clients
    try:
        for answer in itertools.chain([first], itertools.repeat(crowd.answer_tokens)):
            writer.write(_request(crowd, ids.next(round(crowd.asked.prompt_tokens)), answer))
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            await (reader.readexactly(int(length[1])) if length else reader.readuntil(_LAST_CHUNK))
            if not head.startswith(b"HTTP/1.1 200"):  # its curve may be wrong
                await asyncio.sleep(_LOOK_S)
    finally:
        writer.close()


def _request(crowd: _Crowd, prompt: tuple[int, ...], answer_tokens: int) -> bytes:
    asked = {"model": crowd.model, "prompt": prompt, "max_tokens": answer_tokens, "stream": crowd.streams}
    body = json.dumps({**asked, "temperature": 0, "ignore_eos": True}).encode()
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
        b"X-Request-Timeout-Ms: %d\r\nContent-Length: %d\r\n\r\n%b"
    ) % (_HOST.encode(), 1000 * _TIMEOUT_S, len(body), body)


def _context_tokens(served: ServedLlm, crowd: _Crowd) -> int:
    """What those that stand attend to: as much as typical ones, and the same, so that it is read once."""
    shape = served.engine.runtime.shape
    most = min(int(crowd.asked.prompt_tokens), shape.context_tokens // 4, shape.kv_tokens // 4)
    return most // shape.block_tokens * shape.block_tokens


async def _begun(served: ServedLlm, prompt: tuple[int, ...]) -> Running | None:
    """One with an answer that does not end."""
    shape = served.engine.runtime.shape
    most = max(1, min(shape.context_tokens - len(prompt) - 1, shape.kv_tokens // shape.max_sequences - _SHORTEST))
    params = GenerationParams(max_tokens=most, temperature=0.0, ignore_eos=True)
    adapter = next(iter(served.info.adapters), "")
    request = GenerationRequest(prompt, params, adapter=adapter, whole=True)
    try:
        return await served.begin([request], _TIMEOUT_S, time.monotonic(), lambda: None)
    except TryLater:  # its curve may be wrong
        return None


async def _first_tokens(served: ServedLlm, clients: int, until_s: float) -> None:
    """Until so many prompts were read."""
    while time.monotonic() < until_s and not served.engine.why_dead:
        if served.sequences().lanes[Lane.ONLINE].prompt_tokens >= clients * _SHORTEST and not _waiting(served):
            return
        await asyncio.sleep(_LOOK_S)


def _waiting(served: ServedLlm) -> int:
    return served.waiting()[Lane.ONLINE].rows


async def _steps(served: ServedLlm, count: int, until_s: float) -> None:
    """So many, or until then."""
    last = served.engine.stats().calls + count
    while served.engine.stats().calls < last and time.monotonic() < until_s and not served.engine.why_dead:
        await asyncio.sleep(_LOOK_S)
