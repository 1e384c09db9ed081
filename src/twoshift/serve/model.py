"""A model that is served: its rows are admitted, looked up, prepared and answered inside their deadline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from numpy.typing import NDArray

from twoshift.endpoints.facts import characters_of, check_lengths, least_tokens
from twoshift.engine import Engine, RowResult
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.errors import Broken, InvalidInput, Late, OutOfMemory, TooLarge, TryLater
from twoshift.policy.body_guess import BodyGuess
from twoshift.policy.cost import CallCost
from twoshift.ports import Columns, LookupRuntime, Prepared, RuntimeInfo
from twoshift.serve.completions import Completions, Pending
from twoshift.serve.derived import Derived
from twoshift.serve.host import Visit
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.prepare_time import PrepareTime
from twoshift.serve.profile_keeper import ProfileKeeper
from twoshift.serve.stages import Stages
from twoshift.types import Lane, ReplicaCounts, Tensor

__all__ = ["Answer", "ServedModel", "output_tensors"]

_LOOKED_AT = 2_000  # characters of a request, from which on it is looked at before it is prepared
_PREPARE_THREADS = 2
_NOT_ROWS_FAULT = (TryLater, Late, Broken, InvalidInput, OutOfMemory)
_forward_s = attrgetter("forward_s")
_T = TypeVar("_T")


class Answer(msgspec.Struct):
    """A request's results, a row each, in its order."""

    rows: list[RowResult]
    tokens: int
    truncated: int
    stages: Stages


class ServedModel:
    """A model, the engine that owns its device, and what follows from its objective."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        derive: Callable[[CallCost], Derived],
        outputs: tuple[Tensor, ...] = (),
        keeper: ProfileKeeper | None = None,
    ) -> None:
        self.name, self.engine, self.derive = name, engine, derive
        self.derived = derive(engine.cost())  # from the curve that it began with
        self.inputs = engine.runtime.info.inputs
        self.outputs = outputs  # what was seen in its answers; none before the first
        self._counts_tokens = engine.runtime.info.max_row_tokens > 1
        self._lookups = engine.runtime if isinstance(engine.runtime, LookupRuntime) else None
        self._threads = ThreadPoolExecutor(_PREPARE_THREADS, f"twoshift-prepare-{name}")
        self._preparing: dict[object, float] = {}  # since when, in threads
        self._prepare_time = PrepareTime(engine.runtime.info.prepare_waits)
        self._guess = BodyGuess(engine.runtime.info.max_row_tokens)
        self._completions: Completions | None = None
        self._keeper = keeper
        if keeper is not None:
            keeper.start()

    def health(self) -> Health:
        """Whether it keeps up; a row that waits, or a call that runs, for much longer than the objective is stuck."""
        longest_s = max(5.0, 20 * self.derived.slo_s)
        health = self.engine.health(longest_s)
        now_s = time.monotonic()
        taken_s = now_s - min([*self._preparing.values()], default=now_s)
        if health.healthy and taken_s > longest_s:
            return replace(health, healthy=False, reason=f"rows have been in preparation for {taken_s:.3g} s")
        return health

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self.engine.runtime.info

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted."""
        return self.engine.most_rows

    def start(self, completions: Completions) -> None:
        """Its engine runs already; its results come back by these."""
        self._completions = completions

    def derived_now(self) -> Derived:
        """From the curve as learned so far."""
        return self.derive(self.engine.cost())

    def stats(self) -> EngineStats:
        """What its device has done."""
        return self.engine.stats()

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for it."""
        return self.engine.waiting()

    def replicas(self) -> ReplicaCounts:
        """Itself."""
        return ReplicaCounts(1)

    @property
    def rows_per_request(self) -> float:
        """On the average, of late."""
        return self._guess.rows_per_request

    def finish_in_s(self, size: int, requests: int, left_s: float) -> float:
        """Until so many requests of so many bytes would be answered by the device; 0 where nobody has it."""
        return self.engine.finish_in_s(self._guess.size(size, requests), left_s)

    async def answer(self, request: LiveRequest) -> Answer:
        """The results; raises InvalidInput, TooLarge, TryLater, Late, Broken, or what the model raised for a row."""
        rows, deadline_s, visit = request.rows, request.deadline_s, request.visit
        characters = self._check(request)
        stages = Stages(admit=(began_s := time.monotonic()) - request.arrived_s)
        if self._lookups is not None:
            rows = await _paused(visit, self._looked_up(rows, deadline_s))
            stages.lookup, began_s = (now_s := time.monotonic()) - began_s, now_s
        prepare = self.engine.runtime.prepare if self._lookups is None else self._lookups.looked_up
        if self._prepare_time.is_quick(characters):
            prepared = prepare(rows)
            taken_s = time.monotonic() - began_s
            self._prepare_time.observed(characters, taken_s, taken_s)
        else:
            prepared = await _paused(visit, self._prepared(prepare, rows, characters, deadline_s, visit))
        stages.prepare = (queued_s := time.monotonic()) - began_s
        completions = self._completions
        assert completions is not None  # noqa: S101 - start came before
        pending = completions.submit(self.engine, prepared, request)
        if visit is not None:
            visit.submitted()
        try:
            await pending.done
        except BaseException:
            pending.cancel()
            completions.forget(pending)
            raise
        tokens = _total(prepared.lengths)
        if visit is not None:
            visit.answered(pending.settled_s, len(rows) * self.engine.host_time.row_s)
            self._guess.seen(visit.size, len(rows), tokens)
        results = _results(pending)
        ended_s = time.monotonic()
        slowest = results[0] if len(results) == 1 else max(results, key=_forward_s)
        stages.forward, stages.call_rows = slowest.forward_s, slowest.call_rows
        stages.queue = max(0.0, ended_s - queued_s - stages.forward)
        stages.finish = -ended_s  # until the reply is made
        if not self.outputs:
            self.outputs = output_tensors(results[0].columns)
        return Answer(results, tokens, _total(prepared.truncated), stages)

    def close(self) -> None:
        """Let the model go, once what runs has ended."""
        self._threads.shutdown(cancel_futures=True)
        if self._keeper is not None:
            self._keeper.close()
        self.engine.close()

    def _check(self, request: LiveRequest) -> int:
        """Refuse what can never be answered before it costs anything; about how many characters there are."""
        rows = request.rows
        if not rows:
            raise InvalidInput("input", rows, "at least one row")
        if len(rows) > self.engine.most_rows:
            raise TooLarge("input", f"{len(rows):,} rows", f"at most {self.engine.most_rows:,} in a request")
        sizes = characters_of(rows)
        total = sum(sizes)
        if not self._counts_tokens:
            return total
        check_lengths(sizes, self.engine.runtime.info.max_row_tokens)
        if total >= _LOOKED_AT:  # shorter ones are prepared sooner than they are looked at twice
            self.engine.check_room(least_tokens(sizes), request.deadline_s, request.arrived_s)
        return total

    async def _looked_up(self, rows: Sequence[Any], deadline_s: float) -> Sequence[Any]:
        assert self._lookups is not None  # noqa: S101 - its caller has looked
        found = asyncio.wrap_future(self._lookups.lookup(rows))
        try:
            async with _by(deadline_s):
                return await found
        except TimeoutError:
            raise Late("the lookups of the request were not done by its deadline") from None

    async def _prepared(
        self,
        prepare: Callable[[Sequence[Any]], Prepared],
        rows: Sequence[Any],
        characters: int,
        deadline_s: float,
        visit: Visit | None,
    ) -> Prepared:
        """In a thread."""
        prepared = self._threads.submit(self._in_thread, prepare, rows, characters, visit)
        try:
            async with _by(deadline_s):
                return await asyncio.wrap_future(prepared)
        except TimeoutError:
            begun = prepared.running()
            if visit is not None and begun:
                prepared.add_done_callback(partial(_tell_late, visit, asyncio.get_running_loop()))
            raise Late("the rows of the request were not prepared by its deadline", begun=begun) from None

    def _in_thread(
        self, prepare: Callable[[Sequence[Any]], Prepared], rows: Sequence[Any], characters: int, visit: Visit | None
    ) -> Prepared:
        key = object()
        self._preparing[key], began_s = time.monotonic(), time.thread_time()
        try:
            return prepare(rows)
        finally:
            clock_s, processor_s = time.monotonic() - self._preparing.pop(key), time.thread_time() - began_s
            self._prepare_time.observed(characters, clock_s, processor_s)
            if visit is not None and self.engine.runtime.info.prepare_waits:  # a user's Python, and no library's
                visit.before_s += processor_s


async def _paused(visit: Visit | None, waits: Awaitable[_T]) -> _T:
    """What it gives; the loop does other things meanwhile."""
    if visit is None:
        return await waits
    visit.pause()
    try:
        return await waits
    finally:
        visit.resume()


def _tell_late(visit: Visit, loop: asyncio.AbstractEventLoop, _prepared: Future[Prepared]) -> None:
    """In the thread that has prepared its rows too late."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody learns any more
        loop.call_soon_threadsafe(visit.prepared_late)


def _total(numbers: NDArray[Any]) -> int:
    return int(numbers[0]) if len(numbers) == 1 else int(numbers.sum())  # most requests have one row


def output_tensors(columns: Columns) -> tuple[Tensor, ...]:
    """What a row's answer is made of."""
    return tuple(
        Tensor(name, "text" if values.dtype.kind in "OSU" else values.dtype.name, values.shape[1:])
        for name, values in columns.items()
    )


def _results(pending: Pending) -> list[RowResult]:
    results = list[RowResult]()
    for place, result in enumerate(pending.results):
        if isinstance(result, RowResult):
            results.append(result)
            continue
        assert result is not None  # noqa: S101 - all are settled
        if len(pending.results) > 1 and not isinstance(result, _NOT_ROWS_FAULT):
            result.add_note(f"row {place} of {len(pending.results)}")
        raise result
    return results


def _by(deadline_s: float) -> asyncio.Timeout:
    # not `wait_for`, which forgets that it was cancelled where its result comes at the same time
    return asyncio.timeout(max(0.0, deadline_s - time.monotonic()))
