"""Live requests by the clock and background prompts for a language model, and what became of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

_LIVE, _JOB = (64, 32), (128, 64)  # tokens of a prompt, and to generate; half as many to half as many again
_FIRST_ID, _IDS = 1_000, 20_000  # tokens that are nothing special
_LAST_S = 60.0  # live answers that are not whole so long after the last request are lost
_FIRST_ANSWER_S = 60.0  # within which a job has its first answer, so that the engine is full
_LOOK_S = 0.05


class Ask(NamedTuple):
    """A prompt, and how much to generate."""

    token_ids: tuple[int, ...]
    new_tokens: int
    due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Phase:
    """One measurement. Phases of one turn have the same requests, but for the first token: none is found cached."""

    number: int
    turn: int
    seconds: float
    rate: float = 0.0  # live requests a second; 0: none
    background: bool = False
    priorities: bool = False  # live before background, where the engine can be told so
    live_size: tuple[int, int] = _LIVE
    job_size: tuple[int, int] = _JOB
    warm_s: float = 0.0  # before the seconds: the job fills the engine, and streams come as they do later

    def live(self) -> list[Ask]:
        """Poisson arrivals."""
        rng, whole_s = np.random.default_rng([1, self.turn]), self.warm_s + self.seconds
        gaps = rng.exponential(1 / self.rate, int(3 * self.rate * whole_s) + 20) if self.rate else np.array([])
        due = [float(at) for at in np.cumsum(gaps) if at < whole_s]
        return [ask._replace(due_s=at) for ask, at in zip(self._asks(2, len(due), *self.live_size), due, strict=True)]

    def job(self, count: int) -> list[Ask]:
        """The prompts of the job."""
        return self._asks(3, count, *self.job_size)

    def _asks(self, stream: int, count: int, tokens: int, new: int) -> list[Ask]:
        rng = np.random.default_rng([stream, self.turn])
        sizes = rng.integers([tokens // 2, new // 2], [tokens * 3 // 2 + 1, new * 3 // 2 + 1], (count, 2))
        first = _FIRST_ID + self.number
        return [Ask((first, *map(int, rng.integers(_FIRST_ID, _IDS, length - 1))), int(most)) for length, most in sizes]


@dataclass(slots=True)
class Got:
    """What a phase gave; phases of several turns are added up."""

    ttft_s: list[float] = field(default_factory=list[float])
    tpot_s: list[float] = field(default_factory=list[float])  # of a request: the mean over its tokens after the first
    gaps_s: list[float] = field(default_factory=list[float])  # each of them
    seconds: float = 0.0
    live_tokens: int = 0  # within the seconds
    job_tokens: int = 0
    lost: int = 0
    notes: list[str] = field(default_factory=list[str])

    def add(self, other: Got) -> None:
        for name in ("ttft_s", "tpot_s", "gaps_s", "seconds", "live_tokens", "job_tokens", "lost", "notes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Way(Protocol):
    """An engine that answers live requests, and a job beside them."""

    def ask(self, ask: Ask) -> AsyncIterator[int]:
        """A live request: how many tokens came, as they come."""
        ...

    def start_job(self, asks: Sequence[Ask], priorities: bool) -> None: ...

    def job_done(self) -> tuple[int, int]:
        """Sequences and output tokens of the job so far."""
        ...

    async def stop_job(self) -> None: ...

    def notes(self) -> str:
        """What else is to be known of the phase."""
        ...


class _Live:
    """One request after its due time; its latency counts where it is due when counting has begun."""

    def __init__(self, got: Got, began_s: float, until_s: float, counts_s: float = 0.0) -> None:
        self._got, self._began_s, self._until_s, self._counts_s = got, began_s, until_s, counts_s

    async def run(self, way: Way, ask: Ask) -> None:
        due_s = self._began_s + ask.due_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        first_s = last_s = 0.0
        count, gaps_s = 0, list[float]()
        async for tokens in way.ask(ask):
            now_s = time.perf_counter()
            if count:
                gaps_s += [(now_s - last_s) / tokens] * tokens
            first_s, last_s, count = first_s or now_s, now_s, count + tokens
            self._got.live_tokens += tokens if self._counts_s <= now_s < self._until_s else 0
        if count != ask.new_tokens:
            raise RuntimeError(f"{count} tokens came, and not {ask.new_tokens}")
        if due_s < self._counts_s:
            return
        self._got.gaps_s += gaps_s
        self._got.ttft_s.append(first_s - due_s)
        if count > 1:
            self._got.tpot_s.append((last_s - first_s) / (count - 1))


async def run_phase(way: Way, phase: Phase, job_asks: int, say: Callable[[str], None]) -> Got:
    """The job first, until it has an answer; then live requests by the clock, and what comes after `warm_s`."""
    got, asks = Got(seconds=phase.seconds), phase.live()
    if phase.background:
        way.start_job(phase.job(job_asks), phase.priorities)
        await _first_answer(way)
    began_s = time.perf_counter()
    counts_s = began_s + phase.warm_s
    live = _Live(got, began_s, counts_s + phase.seconds, counts_s)
    running = [asyncio.ensure_future(live.run(way, ask)) for ask in asks]
    await _until(counts_s)
    way.notes()  # what the steps before were like
    counted_s, before = time.perf_counter(), way.job_done()[1]
    for quarter in range(1, 5):
        await _until(counts_s + phase.seconds * quarter / 4)
        say(f"{len(got.ttft_s)} of {len(asks)} live answers, {way.job_done()[1] - before:,} tokens of the job")
    got.job_tokens, got.seconds = way.job_done()[1] - before, time.perf_counter() - counted_s
    if running:
        ended, lost = await asyncio.wait(running, timeout=_LAST_S)
        got.lost = len(lost)
        for each in lost:
            each.cancel()
        for each in ended:
            each.result()
    got.notes = [way.notes()]
    if phase.background:
        await way.stop_job()
    return got


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(0.0, at_s - time.perf_counter()))


async def _first_answer(way: Way) -> None:
    before, until_s = way.job_done()[0], time.perf_counter() + _FIRST_ANSWER_S
    while way.job_done()[0] == before:
        if time.perf_counter() > until_s:
            raise RuntimeError(f"the job had no answer within {_FIRST_ANSWER_S:g} s")
        await asyncio.sleep(_LOOK_S)


async def closed_loop(way: Way, asks: Sequence[Ask], clients: int) -> tuple[float, Got]:
    """Seconds that all of them took, so many at once."""
    got, waiting, began_s = Got(), list(asks), time.perf_counter()

    async def client() -> None:
        while waiting:
            now_s = time.perf_counter()
            await _Live(got, now_s, now_s).run(way, waiting.pop()._replace(due_s=0.0))

    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began_s, got
