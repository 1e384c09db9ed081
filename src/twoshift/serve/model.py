"""A model that is served: its rows are admitted, looked up, prepared and answered inside their deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgspec
from numpy.typing import NDArray

from twoshift.endpoints.facts import check_rows, least_lengths
from twoshift.engine import Engine, RowResult
from twoshift.engine.host_turns import host_turns_beside
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.errors import Broken, InvalidInput, Late, OutOfMemory, TryLater
from twoshift.policy.body_guess import BodyGuess
from twoshift.policy.cost import CallCost
from twoshift.ports import Columns, LookupRuntime, PreparedElsewhere, RuntimeInfo
from twoshift.serve.completions import Completions, Pending
from twoshift.serve.derived import Derived
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.preparing import Preparing
from twoshift.serve.profile_keeper import ProfileKeeper
from twoshift.serve.stages import Stages
from twoshift.types import Lane, ReplicaCounts, Tensor

__all__ = ["Answer", "ServedModel", "output_tensors", "results_of"]

_NOT_ROWS_FAULT = (TryLater, Late, Broken, InvalidInput, OutOfMemory)
_forward_s = attrgetter("forward_s")


class Answer(msgspec.Struct):
    """A request's results, a row each, in its order."""

    rows: list[RowResult]
    tokens: int
    truncated: int
    stages: Stages
    version: str = ""  # of the model that has answered
    source: str = ""  # precomputed, live or mixed; empty where there are no precomputed answers
    age_s: float = 0.0  # of the oldest row that was precomputed


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
        self._intake, self.most_rows = engine.live, engine.live.most_rows
        self.derived = derive(engine.cost())  # from the curve that it began with
        self.inputs = engine.runtime.info.inputs
        self.outputs = outputs  # what was seen in its answers; none before the first
        runtime = engine.runtime
        lookups = runtime if isinstance(runtime, LookupRuntime) else None
        prepare = runtime.prepare if lookups is None else lookups.looked_up
        splitter = runtime.row_preparer if isinstance(runtime, PreparedElsewhere) else None
        self._preparing = Preparing(name, prepare, runtime.info.prepare_waits, lookups, runtime.info.texts, splitter)
        self._guess = BodyGuess(engine.runtime.info.max_row_tokens)
        self._completions: Completions | None = None
        self._keeper = keeper
        if keeper is not None:
            keeper.start()

    def health(self) -> Health:
        """Whether it keeps up; a row that waits, or a call that runs, for much longer than the objective is stuck."""
        longest_s = max(5.0, 20 * self.derived.slo_s)
        health = self.engine.health(longest_s)
        taken_s = self._preparing.longest_s(time.monotonic())
        if health.healthy and taken_s > longest_s:
            return replace(health, healthy=False, reason=f"rows have been in preparation for {taken_s:.3g} s")
        return health

    @property
    def crashes(self) -> int:
        """1 where its engine has died."""
        return int(bool(self.engine.why_dead))

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self.engine.runtime.info

    def start(self, completions: Completions) -> None:
        """Its engine runs already; its results come back by these."""
        self._completions = completions
        self.engine.host_time.turns = host_turns_beside(threading.get_ident(), self.engine.limits)

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

    def answered_prepared(self, requests: int, rows: int) -> None:
        """So many requests were answered whose rows somebody else has prepared: their bytes tell nothing of others'."""
        self._guess.counted(requests, rows)

    def finish_in_s(self, size: int, requests: int, left_s: float) -> float:
        """Until so many requests of so many bytes would be answered by the device; 0 where nobody has it."""
        return self._intake.finish_in_s(self._guess.size(size, requests), left_s)

    async def answer(self, request: LiveRequest) -> Answer:
        """The results; raises InvalidInput, TooLarge, TryLater, Late, Broken, or what the model raised for a row."""
        rows, visit = request.rows, request.visit
        characters = self._check(request)
        stages = Stages(admit=(began_s := time.monotonic()) - request.arrived_s)
        given = await self._preparing.prepared(request, characters, stages, began_s)
        prepared = given.rows
        queued_s = time.monotonic()
        completions = self._completions
        assert completions is not None  # noqa: S101 - start came before
        pending = completions.submit(self._intake, prepared, request)
        if visit is not None:
            visit.pause()
        try:
            await pending.done
        except BaseException:
            pending.cancel()
            completions.forget(pending)
            raise
        tokens = _total(prepared.lengths)
        if visit is not None:
            visit.answered(pending.settled_s, len(prepared.lengths) * self.engine.host_time.row_s)
            self._guess.seen(visit.size, len(rows), tokens)
        results = results_of(pending)
        if given.pieces is not None:
            results = given.pieces.merged_rows(results, self.info)
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
        self._preparing.close()
        if self._keeper is not None:
            self._keeper.close()
        self.engine.close()

    def _check(self, request: LiveRequest) -> int:
        """Refuse what can never be answered before it costs anything; about how many characters there are."""
        info = self.engine.runtime.info
        sizes = check_rows(request.rows, self.most_rows, info.max_row_tokens, info.texts)
        if least := least_lengths(sizes, info.max_row_tokens):
            self._intake.check_room(least, request.deadline_s, request.arrived_s)
        return sum(sizes)


def _total(numbers: NDArray[Any]) -> int:
    return int(numbers[0]) if len(numbers) == 1 else int(numbers.sum())  # most requests have one row


def output_tensors(columns: Columns) -> tuple[Tensor, ...]:
    """What a row's answer is made of."""
    return tuple(
        Tensor(name, "text" if values.dtype.kind in "OSU" else values.dtype.name, values.shape[1:])
        for name, values in columns.items()
    )


def results_of(pending: Pending) -> list[RowResult]:
    """Of a request all of whose rows are settled; raises what the first that has none failed with."""
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
