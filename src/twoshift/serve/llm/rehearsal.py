"""Requests before the first client's, so that what live requests cost beside their steps is known at the start.

A runtime that is measured alone does not show what its caller does between two steps: requests are prepared, admitted,
let in and answered by the same interpreter, and the next step waits for it. The engine learns that from its steps.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Iterator

from twoshift.engine.llm.measure import PromptIds
from twoshift.errors import TryLater
from twoshift.generation import GenerationParams, GenerationRequest
from twoshift.policy.plan.generation import Conversation, fitting_sequences
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.llm.running import Running
from twoshift.serve.llm_derived import typical_request
from twoshift.types import Lane

__all__ = ["rehearse"]

_SHORTEST = 8  # tokens of a prompt
_DECODES, _READS = 12, 40  # steps of each kind, at the most
_STEPS_A_REQUEST = 3  # until its reply is there and the next one is asked
_DECODE_SHARE = 0.4  # of the time
_TIMEOUT_S = 600.0
_LOOK_S = 0.01


async def rehearse(served: ServedLlm, seconds: float) -> None:
    """As many typical requests at once as its objective allows, for so long at the most. Nobody else asks it."""
    shape = served.engine.runtime.shape
    asked = typical_request((), shape.context_tokens)
    many = min(served.derived.sequences, fitting_sequences(shape.kv_tokens, asked, shape.max_sequences))
    prompts = _requests(served, asked)
    clients = min(many, _STEPS_A_REQUEST * math.ceil(many / asked.answer_tokens))
    standing = [each for _ in range(many - clients) if (each := await _begun(served, next(prompts[0]))) is not None]
    until_s, reading = time.monotonic() + seconds, list[asyncio.Task[None]]()
    try:
        await _first_tokens(served, until_s)
        await _steps(served, _DECODES, until_s - (1 - _DECODE_SHARE) * seconds)
        reading = [asyncio.create_task(_client(served, prompts[1])) for _ in range(clients)]
        await _steps(served, _READS, until_s)
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for each in standing:
            each.close()
        await asyncio.to_thread(served.engine.drain)


_Requests = Iterator[GenerationRequest]


def _requests(served: ServedLlm, asked: Conversation) -> tuple[_Requests, _Requests]:
    """Those that stay, and those that come and go; no two of them share a beginning."""
    shape = served.engine.runtime.shape
    ids, adapter = PromptIds(shape.vocabulary), next(iter(served.info.adapters), "")
    read, most = round(asked.prompt_tokens), shape.context_tokens - _SHORTEST - 1
    most = max(1, min(most, shape.kv_tokens // shape.max_sequences - _SHORTEST))

    def request(tokens: int, answer: int) -> GenerationRequest:
        params = GenerationParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
        return GenerationRequest(ids.next(tokens), params, adapter=adapter, whole=True)

    return (request(_SHORTEST, most) for _ in itertools.count()), (request(read, 2) for _ in itertools.count())


async def _begun(served: ServedLlm, request: GenerationRequest) -> Running | None:
    try:
        return await served.begin([request], _TIMEOUT_S, time.monotonic(), lambda: None)
    except TryLater:  # its curve may be wrong
        return None


async def _client(served: ServedLlm, requests: _Requests) -> None:
    while True:
        running = await _begun(served, next(requests))
        if running is None:
            await asyncio.sleep(_LOOK_S)
        else:
            await running.whole()


async def _first_tokens(served: ServedLlm, until_s: float) -> None:
    while served.waiting()[Lane.ONLINE].rows and time.monotonic() < until_s:
        await asyncio.sleep(_LOOK_S)


async def _steps(served: ServedLlm, count: int, until_s: float) -> None:
    """So many, or until then."""
    last = served.engine.stats().calls + count
    while served.engine.stats().calls < last and time.monotonic() < until_s and not served.engine.why_dead:
        await asyncio.sleep(_LOOK_S)
