"""Sequences between a front and a replica: streamed as they are generated, ended once, freed where nobody reads."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from fake_llm import words_after
from llm_service import GatedLlm

from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.errors import InvalidInput, TryLater
from twoshift.fleet.answering import Answering
from twoshift.fleet.frames import Frames
from twoshift.fleet.front_connection import FrontConnection
from twoshift.fleet.link import Link, ReplicaLost
from twoshift.fleet.prompt_size import PromptSizes
from twoshift.fleet.remote_sequences import RemoteSequences
from twoshift.fleet.wire import Heartbeat, generating, prompts_of, to_replica
from twoshift.generation import Delta, GenerationParams, GenerationRequest, Message, Tool, ToolCall, ToolChoice, ToolUse
from twoshift.llm_ports import Step
from twoshift.policy.cost import CallCost
from twoshift.serve.llm.model import ServedLlm
from twoshift.types import Lane

WAIT_S = 30.0  # against hangs


class PacedLlm(GatedLlm):
    """As slow as a real one: both ends share a thread, and what the front has not read yet must fit into the socket."""

    def step(self, prefill_tokens: int | None = None) -> Step:
        time.sleep(0.005)
        return super().step(prefill_tokens)


class Pair:
    """A front's link and a replica, in one process: the frames are the real ones."""

    def __init__(self, context_tokens: int, **objective: Any) -> None:
        self.llm = PacedLlm(context_tokens)
        patient = LlmObjective(**{"ttft_s": 60.0, "tpot_s": 10.0, **objective})
        self.engine = LlmEngine(self.llm, CallCost(1e-5, 1e-6, per_row_s=1e-6), patient)
        self.model = ServedLlm("m", self.engine)
        self.beats: list[Heartbeat] = []
        self.grew: list[int] = []
        self.link = Link(self.beats.append, lambda *_: None, lambda: None)
        self._replica: Any = None

    async def connect(self) -> None:
        front, live = socket.socketpair()
        loop = asyncio.get_running_loop()
        incoming = live.dup()
        connection = FrontConnection(Answering(self.model), live)
        self._replica, _ = await loop.create_unix_connection(lambda: connection, sock=incoming)
        front.setblocking(False)
        await loop.create_unix_connection(lambda: self.link, sock=front)

    def ask(self, *rows: GenerationRequest, number: int = 1, timeout_s: float | None = None) -> RemoteSequences:
        over = partial(self.link.end_sequences, number)
        sequences = RemoteSequences(len(rows), self.grew.append, over)
        self.link.generate(number, generating(number, rows, timeout_s, 0.0, "someone"), sequences)
        return sequences

    def kill(self) -> None:
        """As a process that ends: its connection is gone."""
        self._replica.abort()

    def live(self) -> int:
        lane = self.engine.sequences().lanes[Lane.ONLINE]
        return lane.waiting + lane.running


@asynccontextmanager
async def pair(context_tokens: int = 256, **objective: Any) -> AsyncIterator[Pair]:
    made = Pair(context_tokens, **objective)
    await made.connect()
    try:
        async with asyncio.timeout(WAIT_S):
            yield made
    finally:
        made.llm.gate.set()
        made.link.close()
        made.kill()
        await asyncio.to_thread(made.model.close)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def row(text: str = "hello", **params: Any) -> GenerationRequest:
    return GenerationRequest(text, GenerationParams(**{"max_tokens": 5, **params}))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def read(sequences: RemoteSequences, place: int = 0) -> list[Delta]:
    return [delta async for delta in sequences.streams[place]]


@pytest.mark.parametrize(
    "given",
    [
        GenerationRequest("a text", GenerationParams(stop=("a", "ü"), seed=-4, json_schema="{}", logprobs=3)),
        GenerationRequest((3, 1, 2), GenerationParams(min_p=0.5, logit_bias=((3, -1.0), (4, 2.0)))),
        GenerationRequest((Message("system", "be brief"), Message("user", ""))),
        GenerationRequest((Message("user", "x"),), adapter="sql"),
        GenerationRequest("a text", adapter="sql"),
        GenerationRequest((3, 1, 2), adapter="sql"),
        GenerationRequest(
            (Message("assistant", "", (ToolCall("c", "f", "{}"),)), Message("tool", "7", tool_call_id="c")),
            tools=ToolUse((Tool("f", None, "{}"),), ToolChoice.NAMED, "f", parallel=False),
        ),
    ],
)
def test_what_is_asked_of_a_language_model_crosses(given: GenerationRequest) -> None:
    (frame,) = Frames().feed(generating(7, [given, given], 1.5, 0.25, "t"))
    found: Any = to_replica(frame)
    assert prompts_of(found) == [given, given]
    assert (found.id, found.timeout_s, found.waited_s, found.tenant) == (7, 1.5, 0.25, "t")


def test_every_sequence_of_a_request_comes_whole_with_what_it_took() -> None:
    async def test() -> None:
        async with pair() as made:
            sequences = made.ask(row("ab", logprobs=1), row("cd"))
            await sequences.first
            for place, text in enumerate(("ab", "cd")):
                deltas = await read(sequences, place)
                expected = made.llm.text_of(words_after(tuple(map(ord, text)), 5))
                assert "".join(each.text for each in deltas) == expected
                assert [each.finish is None for each in deltas] == [True] * (len(deltas) - 1) + [False]
                assert deltas[-1].usage is not None
                assert deltas[-1].usage.completion_tokens == 5
                assert bool(deltas[0].logprobs) is (place == 0)
            assert sequences.tokens == 4
            assert sum(made.grew) == 10
            assert made.link.outstanding == 0
            assert made.engine.stats().tenants["someone"].rows == 2

    run(test)


def test_a_stream_that_nobody_reads_any_more_leaves_the_replica_s_device() -> None:
    async def test() -> None:
        async with pair(1 << 20) as made:
            sequences = made.ask(row(max_tokens=500_000))
            await sequences.first
            sequences.streams[0].cancel()
            await until(lambda: not made.live())
            assert made.link.outstanding == 0
            assert made.engine.sequences().lanes[Lane.ONLINE].cancelled == 1

    run(test)


def test_one_that_gives_up_before_the_first_token_is_forgotten_too() -> None:
    async def test() -> None:
        async with pair() as made:
            made.llm.gate.clear()
            sequences = made.ask(row())
            await until(lambda: made.live() == 1)
            sequences.close()
            await until(lambda: not made.live())

    run(test)


def test_what_a_replica_refuses_is_raised_as_it_was_there() -> None:
    async def test() -> None:
        async with pair(max_waiting=1) as made:
            made.llm.gate.clear()
            first = made.ask(row())
            await until(lambda: made.live() == 1)
            with pytest.raises(TryLater, match="waiting for their first token") as refused:
                await made.ask(row(), number=2).first
            assert refused.value.retry_after_s >= 0.1
            made.llm.gate.set()
            await first.first
            await read(first)
            with pytest.raises(InvalidInput):
                await made.ask(row(json_schema='"refuse"'), number=3).first

    run(test)


def test_a_replica_that_is_lost_before_the_first_token_leaves_it_to_another_one() -> None:
    async def test() -> None:
        async with pair() as made:
            made.llm.gate.clear()
            sequences = made.ask(row())
            await until(lambda: made.live() == 1)
            made.kill()
            with pytest.raises(ReplicaLost) as lost:
                await sequences.first
            assert not lost.value.started
            with pytest.raises(ReplicaLost):
                made.ask(row(), number=2)

    run(test)


def test_a_replica_that_is_lost_in_mid_stream_ends_it_once_with_an_error_after_what_came() -> None:
    async def test() -> None:
        async with pair(1 << 20) as made:
            sequences = made.ask(row(max_tokens=500_000))
            await sequences.first
            made.kill()
            got, endings = list[Delta](), list[Exception]()
            try:
                async for delta in sequences.streams[0]:
                    got.append(delta)
            except TryLater as error:
                endings.append(error)
            assert got
            assert all(each.finish is None for each in got)
            assert len(endings) == 1
            assert "the replica was lost: the answer is incomplete" in str(endings[0])
            sequences.put(0, Delta("more"))  # what was on the way changes nothing
            assert sequences.streams[0].is_over

    run(test)


def test_a_heartbeat_says_what_live_sequences_hold_and_what_has_ended() -> None:
    async def test() -> None:
        async with pair(1 << 20) as made:
            done = made.ask(row())
            await done.first
            await read(done)
            held = made.ask(row("x" * 100, max_tokens=500_000), number=2)
            await held.first
            least = 100 / made.llm.shape.kv_tokens
            await until(lambda: any(beat.llm and beat.llm.stats.live_kv_use >= least for beat in made.beats))
            beats = [beat.llm for beat in made.beats if beat.llm is not None]
            assert beats[-1].stats.lanes[Lane.ONLINE].running == 1
            assert [each.usage.completion_tokens for beat in beats for each in beat.finished] == [5]
            held.close()

    run(test)


def test_prompts_of_different_adapters_share_no_prefix() -> None:
    sizes, text = PromptSizes(4096), "the same words " * 100
    base, sql, again = ({each.key for each in sizes.of([GenerationRequest(text, adapter=name)]).prefixes}
                        for name in ("", "sql", "sql"))  # fmt: skip
    assert sql == again
    assert sql.isdisjoint(base)
