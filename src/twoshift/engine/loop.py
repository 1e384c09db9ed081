"""The loop that owns the device and runs the lane policy: decide, run, report."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from twoshift.engine.counters import Counters
from twoshift.engine.flight import Flight, as_broken, as_exception, waited
from twoshift.engine.host_time import HostTime
from twoshift.engine.results import BlockAccumulator, BlockFuture, RowFuture, RowResult, RowSink
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.engine.waiting import BlockJob, BlockOwner, LiveRow, Piece, TriedPiece, Waiting
from twoshift.errors import Broken, DeviceLost, InvalidInput, Late, NoRoom, OutOfMemory, TooLarge, TryLater
from twoshift.policy.admission import MAX_WAITING, AdmissionPolicy, Admit, Never, Refuse, Try
from twoshift.policy.cost import CallCost
from twoshift.policy.device_time import DeviceTime
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.plan.row import RowSize
from twoshift.ports import Columns, LanedRuntime, Launched, Prepared, Runtime
from twoshift.types import CallSize, Item, Lane

__all__ = ["Engine"]

_forks = [0]  # that lie between this process and its first; asking the system each time would cost more


def _forked() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_forked)

_BACKGROUND_DEPTH = 2  # the next call is on the device as one ends
_PIECE_ROWS = 16_384  # of a block, queued at a time
_PAUSE_S = 1e-4
_SWITCH_S = 0.0005  # how long a thread may keep the interpreter from one that wants it


class Engine:
    """Live rows and blocks in, futures out. Safe to use from any thread.

    One thread of its own runs the device; two where live calls overtake, one a slot, and one for each lane.
    """

    def __init__(
        self,
        runtime: Runtime,
        cost: CallCost,
        limits: LaneLimits,
        *,
        max_waiting: int = MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
        start: bool = True,
    ) -> None:
        self.runtime = runtime
        self.on_launch: Callable[[Sequence[LiveRow]], None] | None = None  # told in the loop's thread
        self._clock = clock
        lanes = runtime.lanes if isinstance(runtime, LanedRuntime) else 1
        self._beside = runtime.launch_beside if isinstance(runtime, LanedRuntime) and lanes > 1 else None
        self._slots = (Slot.LIVE, Slot.BACKGROUND) if runtime.info.live_stream else (Slot.SHARED,) * lanes
        depth = max(limits.background_depth, _BACKGROUND_DEPTH) if runtime.info.live_stream else 0
        self._policy = LanePolicy(cost, replace(limits, background_depth=depth, lanes=lanes))
        self._admission = AdmissionPolicy(self._policy, max_waiting)
        self._waiting = Waiting(self._policy)
        self._device_time = DeviceTime()
        self._nobody = BlockOwner()
        self._lock = threading.RLock()  # guards all of this
        self._changed = threading.Condition(self._lock)
        self._counters = Counters(self._policy, limits.max_tokens)
        self._flying: list[deque[Flight]] = [deque() for _ in self._slots]  # of each thread
        self._forks = _forks[0]
        self._stopping: str | None = None  # why nothing new is taken
        self._dead: Broken | None = None
        self._resting = 0  # threads that have nothing to do
        self._threads = [
            threading.Thread(target=self._loop, args=(thread_index,), name=f"twoshift-{slot}", daemon=True)
            for thread_index, slot in enumerate(self._slots)
        ]
        # A call must not wait until another thread has formed its own, or answered a dozen requests
        sys.setswitchinterval(min(_SWITCH_S, sys.getswitchinterval()))
        self.host_time = HostTime(runtime.info.runtime == "python")
        for thread in self._threads if start else ():
            thread.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For callers

    def now_s(self) -> float:
        """The clock that deadlines are on."""
        return self._clock()

    def submit(self, rows: Prepared, deadline_s: float) -> list[RowFuture]:
        """Live rows, all or none: raises TryLater where they cannot be answered in time, TooLarge where never, Late."""
        futures = [RowFuture(lambda at=at: self.forget(keys[at : at + 1])) for at in range(len(_lengths(rows)))]
        keys = self.submit_to(futures, rows, deadline_s)
        self.wake()
        return futures

    def submit_to(
        self,
        sinks: Sequence[RowSink],
        rows: Prepared,
        deadline_s: float,
        tenant: str = "",
        since_s: float | None = None,
    ) -> list[int]:
        """The same, with something of the caller's own waiting for each row; the rows' keys, which `forget` takes.

        `since_s` is when their time began, where that is not now: what they have lost of it makes none too large.
        The device may rest until `wake` is called: a caller may have more rows to submit at this moment.
        """
        with self._lock:
            self._check_open(deadline_s)
            now_s = self._clock()
            lengths = _lengths(rows).tolist()
            if deadline_s <= now_s and lengths:
                why = f"the deadline {deadline_s:.3f} has passed on the clock of engine.now_s(): {now_s:.3f}"
                raise Late(why, begun=False, for_clients="its deadline passed before it could begin")
            signature = self._waiting.signatures.number(rows.signature)
            items = [Item(self._waiting.new_key(), deadline_s, n, signature) for n in lengths]
            if (until_s := self._admit(items, now_s, since_s)) is not None:
                items = [item._replace(deadline_s=until_s) for item in items]
            for at, (item, sink) in enumerate(zip(items, sinks, strict=True)):
                self._waiting.add_row(item, LiveRow(rows, at, sink, now_s, deadline_s, item.tokens, tenant))
            return [item.key for item in items]

    @property
    def is_resting(self) -> bool:
        """Whether some of it looks at what was submitted only when it is woken; asked after that."""
        return self._resting > 0

    def wake(self) -> None:
        """Look at what was submitted."""
        with self._lock:
            self._changed.notify_all()

    def forget(self, keys: Sequence[int]) -> int:
        """Live rows that nobody wants any more: what is not on the device yet never will be; how many those are."""
        with self._lock:
            return sum([self._waiting.forget_row(key) for key in keys])

    def finish_in_s(self, size: CallSize, left_s: float) -> float:
        """Until rows of that size would be answered behind all that wait: about; 0: surely long before `left_s`."""
        if self._policy.seems_idle(size, left_s):  # without the lock: most requests of most days
            return 0.0
        with self._lock:
            if not self._policy.has_live:
                return 0.0
            now_s = self._clock()
            return self._policy.finish_about_s(size, now_s) - now_s

    def check_room(self, lengths: Sequence[int], deadline_s: float, since_s: float) -> None:
        """Raises as `submit_to` where rows of at least these lengths would be refused now: before they are prepared."""
        with self._lock:
            signature = self._policy.live.last_signature  # at the best they join the last call
            self._admit([Item(-1, deadline_s, n, signature) for n in lengths], self._clock(), since_s)

    def submit_block(
        self,
        rows: Prepared,
        lane: Lane = Lane.BATCH,
        deadline_s: float = math.inf,
        owed: bool = False,
        owner: BlockOwner | None = None,
    ) -> BlockFuture:
        """Background rows; they travel together and ride where there is room, by deadline and their owner's weight.

        An owner brings its own deadline, and whether it is owed.
        """
        if owner is not None:
            deadline_s, owed = owner.deadline_s, owner.owed
        count = len(_lengths(rows))
        if lane is Lane.ONLINE or count == 0:
            raise InvalidInput("block", f"{count} rows in the {lane} lane", "rows in the micro or batch lane")
        future = BlockFuture(lambda: self._forget_block(job))
        job = BlockJob(
            rows, lane, deadline_s, owed, future, BlockAccumulator(count), self._clock(), owner or self._nobody
        )
        for start in range(0, count, _PIECE_ROWS):
            if start:
                time.sleep(_PAUSE_S)  # live rows must not wait for all of a long block: let them have the lock
            with self._lock:
                self._check_open(deadline_s)
                if not future.done():
                    piece = Piece(job, start, min(count, start + _PIECE_ROWS))
                    self._waiting.add_piece(piece, job.arrived_s)
                    self._changed.notify_all()
        return future

    def hold(self, owner: BlockOwner) -> None:
        """Its rows wait from the next call on, until `release`."""
        with self._lock:
            self._policy.hold(owner.key)

    def release(self, owner: BlockOwner) -> None:
        """Its rows run again."""
        with self._lock:
            self._policy.release(owner.key)
            self._changed.notify_all()

    def retire(self, owner: BlockOwner) -> None:
        """Nobody wants its rows any more: those that wait, held back or not, never run."""
        with self._lock:
            jobs = self._waiting.take_blocks_of(owner)
            self._policy.release(owner.key)
        for job in jobs:
            job.future.settle(TryLater("its owner has left", 1.0))

    def stats(self) -> EngineStats:
        """Counters since the start."""
        with self._lock:
            return self._counters.stats(self._device_time.busy_s)

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for the device."""
        with self._lock:
            return self._waiting.queues(self._clock())

    @property
    def most_rows(self) -> int:
        """Rows of the largest request that can ever be admitted."""
        return self._admission.max_waiting

    @property
    def limits(self) -> LaneLimits:
        """With the lanes that the device has."""
        return self._policy.limits

    def cost(self) -> CallCost:
        """The curve as learned so far, of a call in a lane where there are several."""
        with self._lock:
            self._policy.age(self._clock())
            return self._policy.cost

    def whole_cost(self) -> CallCost:
        """The curve as learned so far, of a live call that has the device to itself."""
        with self._lock:
            self._policy.age(self._clock())
            return self._policy.whole_cost

    def live_row(self, guess: RowSize) -> RowSize:
        """The typical row of live requests; the guess, while there were none."""
        with self._lock:
            return self._policy.live_row.size(guess)

    def slow_down(self, factor: float) -> None:
        """The device is so many times as slow as its curve says, for now: calls outside of the engine have shown it."""
        with self._lock:
            self._policy.slow_down(factor, self._clock())

    def usual_pace(self, size: CallSize) -> float:
        """How long such a call takes usually, as a share of what the curve said that it began with."""
        with self._lock:
            return self._policy.usual_pace(size)

    @property
    def why_dead(self) -> str:
        """What ended its loop for good; empty while it lives."""
        return "" if self._dead is None else str(self._dead)

    def health(self, longest_wait_s: float = 10.0) -> Health:
        """The watchdog's question: is the loop alive, and is nothing stuck?"""
        with self._lock:
            now_s = self._clock()
            running_s = max((now_s - flying[0].began_s for flying in self._flying if flying), default=0.0)
            oldest_s = self._waiting.oldest_row_s(now_s)
            reason = ""
            if self._dead is not None:
                reason = str(self._dead)
            elif _forks[0] != self._forks:
                reason = "this process was forked from the one that the engine runs in"
            elif running_s > longest_wait_s:
                reason = f"a call has been on the device for {running_s:.3g} s"
            elif oldest_s > longest_wait_s and self._waiting.is_overdue(now_s):  # others have brought the time
                reason = f"a row has waited for {oldest_s:.3g} s"
            return Health(not reason, reason, running_s, oldest_s)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take nothing new, finish every live row, hand unfinished blocks back; False when time ran out first."""
        with self._lock:
            self._stopping = self._stopping or "draining"
            jobs = self._waiting.take_all_blocks()
            self._changed.notify_all()
        for job in jobs:
            job.future.settle(TryLater("the engine is draining", 1.0))
        return self._join(timeout_s)

    def close(self) -> None:
        """Stop now: what waits fails, what runs is finished, the device is given back."""
        with self._lock:
            self._stopping = "closed"
            self._changed.notify_all()
        self._fail_everything(Broken("the engine was closed"))
        self._join(None)
        self.runtime.close()

    # The loop

    def _loop(self, thread_index: int) -> None:
        try:
            while self._turn(thread_index):
                pass
        except BaseException as error:
            self._die(thread_index, error)

    def step(self, wait_s: float | None = None) -> bool:
        """One turn of an engine that was not started. False when there is nothing more to do."""
        try:
            more = False
            for thread_index in range(len(self._slots)):
                more |= self._turn(thread_index, wait_s)
        except BaseException as error:
            self._die(0, error)
            raise
        return more

    def _turn(self, thread_index: int, wait_s: float | None = None) -> bool:
        """Decide, run, report. False when there is nothing more to do."""
        flying = self._flying[thread_index]
        with self._lock:
            if self._dead is not None and not flying:
                return False
            now_s = self._clock()
            decision = Idle() if self._dead else self._policy.decide(now_s, self._slots[thread_index])
            match decision:
                case Idle(until_s):
                    if not flying:
                        return self._rest(until_s, wait_s)
                    act = partial(self._land, thread_index)
                case Drop(live, background):
                    act = partial(self._refuse, *self._waiting.take(live, background))
                case Run(call):
                    act = partial(self._fly, thread_index, self._line_up(thread_index, call, now_s))
                case _:
                    assert_never(decision)
        act()  # outside the lock: futures are settled there, and what a caller hangs on one may come back to us
        return True

    def _rest(self, until_s: float | None, wait_s: float | None) -> bool:
        if self._stopping is not None:
            return False
        if until_s is not None:
            left_s = max(0.0, until_s - self._clock())
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        self._resting += 1
        self._changed.wait(wait_s)
        self._resting -= 1
        return True  # and look again: rows may have come in beside the order to stop

    def _line_up(self, thread_index: int, call: Call, now_s: float) -> Flight:
        """The call with its rows, in its slot."""
        rows, pieces = self._waiting.take(call.live, call.background)
        flight = Flight(call, rows, pieces, now_s)
        self._counters.launched(flight, now_s)
        flying = self._flying[thread_index]
        flying.append(flight)
        if len(flying) == 1:
            self._device_time.began(call.number, now_s)
        if self._beside is not None and self._resting and len(self._policy.live):
            self._changed.notify_all()  # what is left is for the other lanes
        return flight

    def _fly(self, thread_index: int, flight: Flight) -> None:
        began_s = time.thread_time()
        prepared = [each.prepared() for each in (*flight.rows, *flight.pieces)]
        if self.on_launch is not None and flight.rows:
            self.on_launch(flight.rows)
        flight.formed_s, flight.began_cpu_s = (now_s := time.thread_time()) - began_s, now_s
        flight.launched = self._launched(prepared, bool(flight.rows), flight.call.slot)
        if flight.call.slot is not Slot.BACKGROUND:  # where the next one is launched first
            self._land(thread_index)

    def _launched(self, prepared: list[Prepared], live: bool, slot: Slot) -> Launched | Exception:
        try:
            if self._beside is not None and slot is Slot.SHARED:
                return self._beside(prepared)
            return self.runtime.launch(prepared, live=live)
        except BaseException as error:  # reported when the call lands: it is the model's, whatever it is
            return as_exception(error)

    def _land(self, thread_index: int) -> None:
        """Wait for the thread's oldest call and report it."""
        flying = self._flying[thread_index]
        flight = flying[0]
        result = waited(flight.launched)
        landed_s = time.thread_time()
        with self._lock:
            ended_s = self._clock()
            flying.popleft()
            device_s = self._device_time.ended(flight.call.number, ended_s)
            if flying:  # the next one has the device now
                flying[0].began_s = ended_s
                self._device_time.began(flying[0].call.number, ended_s)
            elapsed_s = ended_s - flight.began_s
            turn_s = elapsed_s + len(flight.rows) * self.host_time.row_after_s  # what the next call waits for
            per_token_s = device_s / max(1, flight.call.size.tokens)
            for piece, part in zip(flight.pieces, flight.call.background, strict=True):
                part_s = part.tokens * per_token_s
                piece.job.filling.device_s += part_s
                rows = 0 if isinstance(result, Exception) else len(piece)  # they will be tried again
                piece.job.owner.had(rows, part.tokens, part_s, bool(flight.rows))
            self._policy.finished(flight.call, turn_s, isinstance(result, Exception), device_s)
            self._counters.landed(flight, result, ended_s)
            if flight.call.slot is Slot.WHOLE:
                self._changed.notify_all()  # the other lanes have waited for it
            self._counters.paid(flight.rows, per_token_s)
        try:
            if isinstance(result, Exception):
                self._recover(flight.rows, flight.pieces, result)
            else:
                self._deliver(flight.rows, flight.pieces, result, elapsed_s)
                if flight.rows and not flight.pieces:
                    delivered_s = time.thread_time() - landed_s
                    ran_s = landed_s - flight.began_cpu_s
                    self.host_time.observed(len(flight.rows), flight.formed_s, ran_s, delivered_s)
        except BaseException as error:
            flight.abandon(as_broken(error))
            raise

    @staticmethod
    def _deliver(rows: Sequence[LiveRow], pieces: list[Piece], columns: Columns, elapsed_s: float) -> None:
        total = len(rows) + sum(map(len, pieces))
        for at, row in enumerate(rows):
            row.future.settle(RowResult(columns, at, elapsed_s, total))
        at = len(rows)
        for piece in pieces:
            piece.job.filling.put(piece.start, piece.stop, columns, at)
            at += len(piece)
            piece.job.settle_if_full()

    # When a call fails

    def _recover(self, rows: list[LiveRow], pieces: list[Piece], error: Exception) -> None:
        """Find who is guilty and serve the others; a row that failed on its own is. A lost device ends it all."""
        if isinstance(error, DeviceLost):
            raise error
        if isinstance(error, Broken):  # no row is guilty: smaller calls would only hide it
            self._fail_all(rows, [piece.job for piece in pieces], error)
            return
        if not rows and len(pieces) == 1 and len(pieces[0]) == 1:
            pieces[0].fail(error)
            return
        self._requeue(pieces, error)
        if len(rows) == 1 and not pieces:
            rows[0].future.settle(error)
        else:
            self._isolate(rows)

    def _requeue(self, pieces: list[Piece], error: Exception) -> None:
        """Background rows of a failed call go back, to run apart from everybody else.

        Where the memory ran out nobody is guilty: the cap is lower now, and they go back as they were.
        """
        alone = not isinstance(error, OutOfMemory)
        halve = alone and len(pieces) == 1 and len(pieces[0]) > 1
        with self._lock:
            over = self._dead or (TryLater(f"the engine is {self._stopping}", 1.0) if self._stopping else None)
            for piece in pieces if over is None else ():
                if piece.job.future.done():
                    continue
                middle = (piece.start + piece.stop) // 2 if halve else piece.stop
                for start, stop in ((piece.start, middle), (middle, piece.stop)):
                    if start < stop:
                        self._waiting.add_piece(Piece(piece.job, start, stop), self._clock(), alone)
            self._changed.notify_all()
        if over is not None:  # nobody would run them
            for piece in pieces:
                piece.job.future.settle(over)

    def _isolate(self, rows: Sequence[LiveRow]) -> None:
        """Live rows of a failed call are run again in halves, at once: they have deadlines."""
        half = (len(rows) + 1) // 2
        for group in (rows[:half], rows[half:]):
            if not group:
                continue
            result, elapsed_s = self._run_apart(group)
            if not isinstance(result, Exception):
                self._deliver(group, [], result, elapsed_s)
            elif isinstance(result, DeviceLost):
                raise result
            elif len(group) == 1 or isinstance(result, Broken):
                self._fail_all(group, [], result)
            else:
                self._isolate(group)

    def _fail_all(self, rows: Sequence[LiveRow], jobs: Sequence[BlockJob], error: Exception) -> None:
        for job in jobs:
            self._forget_block(job)
        for waiting in (*rows, *jobs):
            waiting.future.settle(error)

    def _run_apart(self, rows: Sequence[LiveRow]) -> tuple[Columns | Exception, float]:
        """A call that the policy did not plan; it belongs into the books, too."""
        key = -1 - self._waiting.new_key()  # no planned call has it
        with self._lock:
            began_s = self._clock()
            self._device_time.began(key, began_s)
        result = waited(self._launched([row.prepared() for row in rows], True, self._slots[0]))
        with self._lock:
            ended_s = self._clock()
            device_s = self._device_time.ended(key, ended_s)
            self._counters.calls += 1
            tokens = sum(row.tokens for row in rows)
            self._policy.charge(Lane.ONLINE, 0, tokens, device_s)
            self._counters.paid(rows, device_s / max(1, tokens), anew=True)
        return result, ended_s - began_s

    def _refuse(self, rows: list[LiveRow], pieces: list[Piece]) -> None:
        for row in rows:
            row.future.settle(Late("the deadline could no longer be met", begun=False))
        for piece in pieces:
            if not self._try_live(piece):
                piece.fail(self._no_room(int(piece.job.rows.lengths[piece.start])))

    def _try_live(self, piece: Piece) -> bool:
        """Ask a batch row that only a prediction keeps off the device as a live one, behind all others; whether it was.

        Its call says what such rows take: without live requests nothing else would.
        """
        rows, tokens = piece.job.rows, int(piece.job.rows.lengths[piece.start])
        with self._lock:
            now_s = self._clock()
            if self._stopping or self._dead or self._policy.surely_outlasts(CallSize.uniform(1, tokens), now_s):
                return False
            item = Item(self._waiting.new_key(), math.inf, tokens, self._waiting.signatures.number(rows.signature))
            sink = TriedPiece(piece, self._lock)
            self._waiting.add_row(item, LiveRow(rows, piece.start, sink, now_s, math.inf, tokens))
        return True

    def _no_room(self, tokens: int) -> NoRoom:
        """Of a background row that no call may hold: the row is good, and the objective is in its way."""
        limits = self._policy.limits
        if tokens > limits.max_tokens:
            return NoRoom(f"a row of {tokens:,} tokens; a call holds {limits.max_tokens:,}")
        takes, leaves = 1e3 * self._policy.ever_s(CallSize.uniform(1, tokens)), 1e3 * limits.budget_s
        slo = "" if limits.slo_s is None else f"the SLO of {1e3 * limits.slo_s:g} ms leaves "
        change = "start the server with a larger --slo-ms or --call-budget-ms, or run the job without --on"
        return NoRoom(f"{slo}{leaves:.3g} ms to a call with batch rows, and one row takes {takes:.3g} ms: {change}")

    # Bookkeeping

    def _check_open(self, deadline_s: float) -> None:
        if math.isnan(deadline_s):
            raise InvalidInput("deadline_s", deadline_s, "a time on the engine's clock, or inf")
        if _forks[0] != self._forks:
            raise Broken("the engine runs in the process that started it, and this one was forked from that")
        if self._dead is not None:
            raise self._dead.with_traceback(None)  # it is raised again and again: its traceback must not grow
        if self._stopping is not None:
            if self._stopping == "closed":
                raise Broken("the engine is closed: create another one")
            raise TryLater(f"the engine is {self._stopping}", 1.0)

    def _admit(self, items: list[Item], now_s: float, since_s: float | None) -> float | None:
        """The deadline that its rows are queued with, where that is not their own."""
        answer = self._admission.decide(items, now_s, since_s)
        match answer:
            case Admit():
                return None
            case Try(until_s):
                return until_s
            case Refuse(retry_after_s, reason):
                raise TryLater(reason, retry_after_s)
            case Never():
                raise _too_large(answer)
            case _:
                assert_never(answer)

    def _forget_block(self, job: BlockJob) -> None:
        with self._lock:
            self._waiting.forget_block(job)

    def _join(self, timeout_s: float | None) -> bool:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _die(self, thread_index: int, error: BaseException) -> None:
        """A loop ends under its calls: nobody may wait for ever."""
        with self._lock:
            self._dead = self._dead or as_broken(error)
            flights = list(self._flying[thread_index])
            self._flying[thread_index].clear()
            self._changed.notify_all()
        for flight in flights:
            flight.abandon(self._dead)
        self._fail_everything(self._dead)

    def _fail_everything(self, error: Exception) -> None:
        with self._lock:
            rows, jobs = self._waiting.take_all_rows(), self._waiting.take_all_blocks()
        for waiting in (*rows, *jobs):
            waiting.future.settle(error)


def _too_large(never: Never) -> TooLarge:
    return TooLarge("request", never.reason, "a smaller request, or more time (x-request-timeout-ms)")


def _lengths(rows: Prepared) -> NDArray[np.int64]:
    """Tokens of each row; raises InvalidInput for rows that were not prepared."""
    lengths = getattr(rows, "lengths", None)
    if lengths is None:
        raise InvalidInput("rows", rows, "rows from engine.runtime.prepare(rows)")
    return lengths
