"""One thread owns the device and runs the lane policy: decide, run, report."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from twoshift.engine.memory import MemoryCap
from twoshift.engine.results import BlockFuture, BlockResult, Filling, RowFuture, RowResult
from twoshift.errors import Broken, DeviceLost, InvalidInput, OutOfMemory, TooLarge, TryLater
from twoshift.policy.admission import AdmissionPolicy, Admit, Never, Refuse
from twoshift.policy.background_queue import Block, Slice
from twoshift.policy.cost import CallCost
from twoshift.policy.lanes import Call, Drop, Idle, LaneLimits, LanePolicy, LaneUse, Run
from twoshift.ports import Columns, Prepared, Runtime
from twoshift.types import Item, Lane

__all__ = ["Engine", "EngineStats", "Health"]


@dataclass(slots=True)
class _Row:
    """A live row that waits or runs."""

    rows: Prepared
    at: int
    future: RowFuture
    arrived_s: float


@dataclass(slots=True)
class _BlockJob:
    """A block that was submitted, however often it has been cut since."""

    rows: Prepared
    lane: Lane
    deadline_s: float
    owed: bool
    future: BlockFuture
    filling: Filling
    arrived_s: float
    keys: set[int]  # of its parts in the policy


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows `start` to `stop` of a block that was submitted."""

    job: _BlockJob
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the device has done; over the lanes, device seconds sum to `busy_s`."""

    lanes: dict[Lane, LaneUse]
    waits_s: dict[Lane, float]  # summed over rows, from submission to launch
    calls: int
    busy_s: float
    failed_calls: int
    max_tokens: int  # the cap now; lower than configured after the memory ran out


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the loop lives and keeps up."""

    healthy: bool
    reason: str
    running_s: float  # of the call on the device
    oldest_wait_s: float  # of the live rows


class Engine:
    """Live rows and blocks in, futures out. Safe to use from any thread; one thread of its own runs the device."""

    def __init__(
        self,
        runtime: Runtime,
        cost: CallCost,
        limits: LaneLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        start: bool = True,
    ) -> None:
        self.runtime = runtime
        self._clock = clock
        self._policy = LanePolicy(cost, limits)
        self._admission = AdmissionPolicy(self._policy)
        self._memory = MemoryCap(limits.max_tokens)
        self._changed = threading.Condition(threading.RLock())  # guards everything below and the policy
        self._rows: dict[int, _Row] = {}  # key -> live row that waits
        self._parts: dict[int, tuple[_BlockJob, int]] = {}  # key in the policy -> block, and where in it row 0 is
        self._keys = itertools.count()
        self._calls = self._failed_calls = 0
        self._busy_s = 0.0
        self._waits_s = dict.fromkeys(Lane, 0.0)
        self._launched_s: float | None = None  # when the running call began
        self._stopping: str | None = None  # why nothing new is taken
        self._dead: Broken | None = None
        self._thread = threading.Thread(target=self._loop, name="twoshift-engine", daemon=True)
        if start:
            self._thread.start()

    # For callers

    def now_s(self) -> float:
        """The clock that deadlines are on."""
        return self._clock()

    def submit(self, rows: Prepared, deadline_s: float) -> list[RowFuture]:
        """Live rows, all or none: raises TryLater where they cannot be answered in time, TooLarge where never."""
        with self._changed:
            self._check_open()
            now_s = self._clock()
            lengths = rows.lengths.tolist()
            if not lengths:
                return []
            items = [Item(next(self._keys), deadline_s, n) for n in lengths]
            self._admit(items, now_s)
            futures = [self._queue_row(rows, at, item, now_s) for at, item in enumerate(items)]
            self._changed.notify()
            return futures

    def submit_block(
        self, rows: Prepared, lane: Lane = Lane.BATCH, deadline_s: float = math.inf, owed: bool = False
    ) -> BlockFuture:
        """Background rows; they travel together and ride where there is room."""
        with self._changed:
            self._check_open()
            count = len(rows.lengths)
            if lane is Lane.ONLINE or count == 0:
                raise InvalidInput("block", f"{count} rows in the {lane} lane", "rows in the micro or batch lane")
            job = _BlockJob(
                rows,
                lane,
                deadline_s,
                owed,
                BlockFuture(lambda: self._forget(job)),
                Filling(count),
                self._clock(),
                set(),
            )
            self._queue_part(job, 0, count)
            self._changed.notify()
            return job.future

    def stats(self) -> EngineStats:
        """Counters since the start."""
        with self._changed:
            lanes = {lane: replace(use) for lane, use in self._policy.use.items()}
            waits_s = dict(self._waits_s)
            max_tokens = self._policy.max_tokens
            return EngineStats(lanes, waits_s, self._calls, self._busy_s, self._failed_calls, max_tokens)

    def cost(self) -> CallCost:
        """The curve as learned so far."""
        with self._changed:
            return self._policy.cost

    def health(self, longest_wait_s: float = 10.0) -> Health:
        """The watchdog's question: is the loop alive, and is nothing stuck?"""
        with self._changed:
            now_s = self._clock()
            running_s = 0.0 if self._launched_s is None else now_s - self._launched_s
            waits_s = (now_s - row.arrived_s for row in self._rows.values())
            oldest_s = max(waits_s, default=0.0)
            reason = ""
            if self._dead is not None:
                reason = str(self._dead)
            elif running_s > longest_wait_s:
                reason = f"a call has been on the device for {running_s:.3g} s"
            elif oldest_s > longest_wait_s:
                reason = f"a row has waited for {oldest_s:.3g} s"
            return Health(not reason, reason, running_s, oldest_s)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take nothing new, finish every live row, hand unfinished blocks back; False when time ran out first."""
        with self._changed:
            self._stopping = self._stopping or "draining"
            jobs = self._take_jobs()
            self._changed.notify_all()
        for job in jobs:
            job.future.settle(TryLater("the engine is draining", 1.0))
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop now: what waits fails, what runs is finished, the device is given back."""
        with self._changed:
            self._stopping = "closed"
            self._changed.notify_all()
        self._fail_everything(Broken("the engine was closed"))
        if self._thread.is_alive():
            self._thread.join()
        self.runtime.close()

    # The loop

    def _loop(self) -> None:
        try:
            while self.step():
                pass
        except BaseException as error:
            with self._changed:
                self._dead = _as_broken(error)
                self._launched_s = None
            self._fail_everything(self._dead)

    def step(self, wait_s: float | None = None) -> bool:
        """One turn: decide, run, report. False when there is nothing more to do."""
        with self._changed:
            if self._dead is not None:
                return False
            decision = self._policy.decide(self._clock())
            match decision:
                case Idle():
                    if self._stopping is None:
                        self._changed.wait(wait_s)
                    return self._stopping is None
                case Drop(live, background):
                    rows, pieces = [self._rows.pop(item.key) for item in live], self._take_pieces(background)
                case Run(call):
                    rows, pieces = self._gather(call)
                case _:
                    assert_never(decision)
        # Futures are settled outside the lock: what a caller hangs on them may come back to us.
        if isinstance(decision, Drop):
            self._refuse(rows, pieces)
            return True
        try:
            self._run(decision.call, rows, pieces)
        except BaseException as error:
            self._abandon(rows, pieces, _as_broken(error))
            raise
        return True

    def _run(self, call: Call, rows: list[_Row], pieces: list[_Piece]) -> None:
        prepared = [row.rows.slice(row.at, row.at + 1) for row in rows]
        prepared += [piece.job.rows.slice(piece.start, piece.stop) for piece in pieces]
        began_s = self._launched_s = self._clock()
        result = self._launch(prepared, live=bool(rows))
        elapsed_s = self._clock() - began_s
        with self._changed:
            self._launched_s = None
            self._policy.finished(call, elapsed_s, failed=isinstance(result, Exception))
            self._count(call, elapsed_s, result)
        if isinstance(result, Exception):
            self._recover(rows, pieces, result)
        else:
            self._deliver(rows, pieces, result, elapsed_s)

    def _launch(self, prepared: list[Prepared], live: bool) -> Columns | Exception:
        try:
            return self.runtime.launch(prepared, live=live).wait()
        except DeviceLost:
            raise
        except Exception as error:
            return error

    def _gather(self, call: Call) -> tuple[list[_Row], list[_Piece]]:
        now_s = self._clock()
        rows = [self._rows.pop(item.key) for item in call.live]
        self._waits_s[Lane.ONLINE] += sum(now_s - row.arrived_s for row in rows)
        pieces = self._take_pieces(call.background)
        for piece in pieces:
            self._waits_s[piece.job.lane] += (piece.stop - piece.start) * (now_s - piece.job.arrived_s)
        return rows, pieces

    def _take_pieces(self, slices: tuple[Slice, ...]) -> list[_Piece]:
        """The policy's slices as stretches of the blocks that were submitted."""
        pieces: list[_Piece] = []
        for part in slices:
            job, offset = self._parts[part.block]
            pieces.append(_Piece(job, offset + part.start, offset + part.stop))
            if part.block not in self._policy.background:
                del self._parts[part.block]
                job.keys.discard(part.block)
        return pieces

    def _count(self, call: Call, elapsed_s: float, result: Columns | Exception) -> None:
        self._calls += 1
        self._busy_s += elapsed_s
        self._failed_calls += isinstance(result, Exception)
        if isinstance(result, OutOfMemory):
            self._policy.cap_tokens(self._memory.ran_out(call.size.tokens))
        elif not isinstance(result, Exception) and (raised := self._memory.fitted(call.size.tokens)):
            self._policy.cap_tokens(raised)

    def _deliver(self, rows: Sequence[_Row], pieces: list[_Piece], columns: Columns, elapsed_s: float) -> None:
        total = len(rows) + sum(piece.stop - piece.start for piece in pieces)
        for at, row in enumerate(rows):
            row.future.settle(RowResult(columns, at, elapsed_s, total))
        at = len(rows)
        for piece in pieces:
            piece.job.filling.put(piece.start, piece.stop, columns, at)
            at += piece.stop - piece.start
            self._finish_if_full(piece.job)

    @staticmethod
    def _finish_if_full(job: _BlockJob) -> None:
        if job.filling.left == 0:
            job.future.settle(BlockResult(job.filling.columns, job.filling.errors))

    # When a call fails

    def _recover(self, rows: list[_Row], pieces: list[_Piece], error: Exception) -> None:
        """Find who is guilty and serve the others; a row that failed on its own is."""
        if not rows and len(pieces) == 1 and pieces[0].stop - pieces[0].start == 1:
            pieces[0].job.filling.fail(pieces[0].start, pieces[0].stop, error)
            self._finish_if_full(pieces[0].job)
            return
        with self._changed:
            self._requeue(pieces, error)
        if len(rows) == 1 and not pieces:
            rows[0].future.settle(error)
        else:
            self._isolate(rows)

    def _requeue(self, pieces: list[_Piece], error: Exception) -> None:
        """Background rows of a failed call go back, to run apart from everybody else.

        Where the memory ran out nobody is guilty: the cap is lower now, and they go back as they were.
        """
        alone = not isinstance(error, OutOfMemory)
        halve = alone and len(pieces) == 1 and pieces[0].stop - pieces[0].start > 1
        for piece in pieces:
            if piece.job.future.done():
                continue
            middle = (piece.start + piece.stop) // 2 if halve else piece.stop
            for start, stop in ((piece.start, middle), (middle, piece.stop)):
                if start < stop:
                    self._queue_part(piece.job, start, stop, alone)

    def _isolate(self, rows: Sequence[_Row]) -> None:
        """Live rows of a failed call are run again in halves, at once: they have deadlines."""
        half = (len(rows) + 1) // 2
        for group in (rows[:half], rows[half:]):
            if not group:
                continue
            began_s = self._clock()
            result = self._launch([row.rows.slice(row.at, row.at + 1) for row in group], live=True)
            elapsed_s = self._account_for(group, began_s)
            if not isinstance(result, Exception):
                self._deliver(group, [], result, elapsed_s)
            elif len(group) == 1:
                group[0].future.settle(result)
            else:
                self._isolate(group)

    def _account_for(self, rows: Sequence[_Row], began_s: float) -> float:
        """A launch that the policy did not plan belongs into the books, too."""
        elapsed_s = self._clock() - began_s
        with self._changed:
            self._calls += 1
            self._busy_s += elapsed_s
            tokens = sum(int(row.rows.lengths[row.at]) for row in rows)
            self._policy.charge(Lane.ONLINE, 0, tokens, elapsed_s)
        return elapsed_s

    def _refuse(self, rows: list[_Row], pieces: list[_Piece]) -> None:
        budget_s = self._policy.limits.budget_s
        for row in rows:
            row.future.settle(TryLater("the deadline could no longer be met", budget_s))
        for piece in pieces:
            tokens = int(piece.job.rows.lengths[piece.start])
            error = TooLarge("row", f"{tokens} tokens", f"a row that a call within {budget_s:.3g} s can hold")
            piece.job.filling.fail(piece.start, piece.stop, error)
            self._finish_if_full(piece.job)

    # Bookkeeping

    def _check_open(self) -> None:
        if self._dead is not None:
            raise self._dead
        if self._stopping is not None:
            raise TryLater(f"the engine is {self._stopping}", 1.0)

    def _admit(self, items: list[Item], now_s: float) -> None:
        answer = self._admission.decide(items, now_s)
        match answer:
            case Admit():
                return
            case Refuse(retry_after_s, reason):
                raise TryLater(reason, retry_after_s)
            case Never(reason):
                raise TooLarge("request", reason, "a smaller request, or more time")
            case _:
                assert_never(answer)

    def _queue_row(self, rows: Prepared, at: int, item: Item, now_s: float) -> RowFuture:
        future = RowFuture(lambda: self._forget_row(item.key))
        self._rows[item.key] = _Row(rows, at, future, now_s)
        self._policy.submit(item, now_s)
        return future

    def _queue_part(self, job: _BlockJob, start: int, stop: int, alone: bool = False) -> None:
        key = next(self._keys)
        lengths = job.rows.lengths[start:stop].tolist()
        self._parts[key] = (job, start)
        job.keys.add(key)
        self._policy.submit_block(Block(key, lengths, job.lane, job.deadline_s, job.owed, alone), self._clock())

    def _forget_row(self, key: int) -> None:
        with self._changed:
            if self._policy.cancel(key):
                del self._rows[key]

    def _forget(self, job: _BlockJob) -> None:
        with self._changed:
            for key in job.keys:
                self._policy.cancel_block(key)
                del self._parts[key]
            job.keys.clear()

    def _take_jobs(self) -> list[_BlockJob]:
        """Every block that waits, taken out of the policy."""
        jobs = list({id(job): job for job, _ in self._parts.values()}.values())
        for job in jobs:
            self._forget(job)
        return jobs

    def _fail_everything(self, error: Exception) -> None:
        with self._changed:
            rows = list(self._rows.items())
            for key, _ in rows:
                self._policy.cancel(key)
            self._rows.clear()
            jobs = self._take_jobs()
        for _, row in rows:
            row.future.settle(error)
        for job in jobs:
            job.future.settle(error)

    @staticmethod
    def _abandon(rows: list[_Row], pieces: list[_Piece], error: Broken) -> None:
        """The loop is about to die under this call: nobody may wait for ever."""
        for row in rows:
            row.future.settle(error)
        for piece in pieces:
            piece.job.future.settle(error)


def _as_broken(error: BaseException) -> Broken:
    return error if isinstance(error, Broken) else Broken(f"the engine stopped: {error!r}")
