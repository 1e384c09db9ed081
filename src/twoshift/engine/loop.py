"""The loop that owns the device and runs the lane policy: decide, run, report."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from twoshift.engine.counters import Counters
from twoshift.engine.device_loop import DeviceLoop
from twoshift.engine.flight import Flight, as_broken, as_exception, deliver, waited
from twoshift.engine.gentle_prepare import gentle_preparing
from twoshift.engine.host_time import HostTime
from twoshift.engine.live_intake import LiveIntake
from twoshift.engine.recovery import Recovery
from twoshift.engine.results import BlockAccumulator, BlockFuture, RowFuture
from twoshift.engine.stats import EngineStats
from twoshift.engine.waiting import BlockJob, BlockOwner, BlockPiece, LiveRow, LiveRows, Waiting, lengths_of, parts_of
from twoshift.errors import InvalidInput
from twoshift.policy.admission import MAX_WAITING, AdmissionPolicy
from twoshift.policy.cost import CallCost
from twoshift.policy.device_time import DeviceTime
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.plan.row import RowSize
from twoshift.ports import Columns, LanedRuntime, Launched, Prepared, Runtime
from twoshift.types import CallSize, Lane

__all__ = ["Engine"]

_BACKGROUND_DEPTH = 2  # the next call is on the device as one ends
_PIECE_ROWS = 16_384  # of a block, queued at a time
_PAUSE_S = 1e-4
# How long a thread may keep the interpreter from one that wants it; a GPU's calls are short, and want it several times
_SWITCH_S, _SWITCH_ON_GPU_S = 0.0005, 0.0001


class Engine(DeviceLoop):
    """Live rows and blocks in, futures out. Safe to use from any thread.

    One thread of its own runs the device; two where live calls overtake, one a slot, and one for each lane.
    """

    call = "call"

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
        lanes = runtime.lanes if isinstance(runtime, LanedRuntime) else 1
        depth = max(limits.background_depth, _BACKGROUND_DEPTH) if runtime.info.live_stream else 0
        limits = replace(limits, background_depth=depth, lanes=lanes, pads=runtime.info.pads)
        self._policy = LanePolicy(cost, limits)
        self._waiting = Waiting(self._policy)
        super().__init__(runtime, self._waiting, clock)
        self.runtime = runtime
        self.gentle = None if limits.slo_s is None else gentle_preparing(runtime, self._has_live)
        admission = AdmissionPolicy(self._policy, max_waiting)
        self.live = LiveIntake(
            self._policy, admission, self._waiting, self._lock, self._changed, clock, self._check_open
        )
        self.on_launch: Callable[[Sequence[LiveRow]], None] | None = None  # told in the loop's thread
        self._beside = runtime.launch_beside if isinstance(runtime, LanedRuntime) and lanes > 1 else None
        self._slots = (Slot.LIVE, Slot.BACKGROUND) if runtime.info.live_stream else (Slot.SHARED,) * lanes
        self._device_time = DeviceTime()
        self._counters = Counters(self._policy, limits.max_tokens)
        self._flying: list[deque[Flight]] = [deque() for _ in self._slots]  # of each thread
        self._recovery = Recovery(self._changed, self._closed_by, self._policy, self._waiting, self._run_apart, clock)
        # A call must not wait until another thread has formed its own, or answered a dozen requests
        switch_s = _SWITCH_ON_GPU_S if runtime.info.live_stream else _SWITCH_S
        sys.setswitchinterval(min(switch_s, sys.getswitchinterval()))
        self.host_time = HostTime(runtime.info.runtime == "python")
        threads = [
            threading.Thread(target=self._loop, args=(thread_index,), name=f"twoshift-{slot}", daemon=True)
            for thread_index, slot in enumerate(self._slots)
        ]
        self._start(threads, start)

    # For callers

    def submit(self, rows: Prepared, deadline_s: float) -> list[RowFuture]:
        """Live rows, all or none: raises TryLater where they cannot be answered in time, TooLarge where never, Late."""
        keys = list[int]()
        futures = [RowFuture(lambda at=at: self.live.forget(keys[at : at + 1])) for at in range(len(lengths_of(rows)))]
        keys += self.live.submit(LiveRows(rows, 0, futures, deadline_s))
        self.live.wake()
        return futures

    def submit_block(
        self,
        rows: Prepared,
        lane: Lane = Lane.BATCH,
        deadline_s: float = math.inf,
        owed: bool = False,
        owner: BlockOwner | None = None,
    ) -> BlockFuture:
        """Background rows; they travel together and ride where there is room, by deadline and their owner's weight.

        An owner brings its own lane and deadline, and whether it is owed.
        """
        if owner is not None:
            lane, deadline_s, owed = owner.lane, owner.deadline_s, owner.owed
        if math.isnan(deadline_s):
            raise InvalidInput("deadline_s", deadline_s, "a time on the clock of engine.now_s(), or inf")
        count = len(lengths_of(rows))
        if lane is Lane.ONLINE or count == 0:
            raise InvalidInput(
                "block", f"{count} rows in the {lane} lane", "at least one row, in the lane `micro` or `batch`"
            )
        future = BlockFuture(lambda: self._forget_block(job))
        job = BlockJob(
            rows, lane, deadline_s, owed, future, BlockAccumulator(count), self._clock(), owner or self._nobody
        )
        for start in range(0, count, _PIECE_ROWS):
            if start:
                time.sleep(_PAUSE_S)  # live rows must not wait for all of a long block: let them have the lock
            with self._lock:
                self._check_open()
                if not future.done():
                    piece = BlockPiece(job, start, min(count, start + _PIECE_ROWS))
                    self._waiting.add_piece(piece, job.arrived_s)
                    self._changed.notify_all()
        return future

    def stats(self) -> EngineStats:
        """Counters since the start."""
        with self._lock:
            return self._counters.stats(self._device_time.busy_s)

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted, live or in a batch."""
        return self.live.most_rows

    @property
    def limits(self) -> LaneLimits:
        """With the lanes that the device has."""
        return self._policy.limits

    def cost(self) -> CallCost:
        """The curve as learned so far, of a call in a lane where there are several."""
        with self._lock:
            self._policy.curves.age(self._clock())
            return self._policy.curves.cost

    def whole_cost(self) -> CallCost:
        """The curve as learned so far, of a live call that has the device to itself."""
        with self._lock:
            self._policy.curves.age(self._clock())
            return self._policy.curves.whole_cost

    def live_row(self, guess: RowSize) -> RowSize:
        """The typical row of live requests; the guess, while there were none."""
        with self._lock:
            return self._policy.accounts.live_row.size(guess)

    def slow_down(self, factor: float) -> None:
        """The device is so many times as slow as its curve says, for now: calls outside of the engine have shown it."""
        with self._lock:
            self._policy.slow_down(factor, self._clock())

    def usual_pace(self, size: CallSize) -> float:
        """How long such a call takes usually, as a share of what the curve said that it began with."""
        with self._lock:
            return self._policy.curves.usual_pace(size)

    def _has_live(self) -> bool:
        with self._lock:
            return self._policy.has_live

    def _running_s(self, now_s: float) -> float:
        return max((now_s - flying[0].began_s for flying in self._flying if flying), default=0.0)

    # The loop

    def _loop(self, thread_index: int) -> None:
        try:
            while self._turn(thread_index):
                pass
        except BaseException as error:
            self._end_loop(thread_index, error)

    def step(self, wait_s: float | None = None) -> bool:
        """One turn of an engine that was not started. False when there is nothing more to do."""
        try:
            more = False
            for thread_index in range(len(self._slots)):
                more |= self._turn(thread_index, wait_s)
        except BaseException as error:
            self._end_loop(0, error)
            raise
        return more

    def _end_loop(self, thread_index: int, error: BaseException) -> None:
        with self._lock:
            flights = list(self._flying[thread_index])
            self._flying[thread_index].clear()
        dead = self._die(error)
        for flight in flights:
            flight.abandon(dead)

    def _turn(self, thread_index: int, wait_s: float | None = None) -> bool:
        """Decide, run, report. False when there is nothing more to do."""
        flying = self._flying[thread_index]
        with self._lock:
            if self._dead is not None and not flying:
                return False
            now_s = self._clock()
            if now_s < self.live.gather_until_s and self._stopping is None and not flying:
                return self._rest(self.live.gather_until_s, wait_s)
            decision = Idle() if self._dead else self._policy.decide(now_s, self._slots[thread_index])
            match decision:
                case Idle(until_s):
                    if not flying:
                        return self._rest(until_s, wait_s)
                    act = partial(self._land, thread_index)
                case Drop(live, background):
                    act = partial(self._recovery.refuse, *self._waiting.take(live, background))
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
        self.live.resting += 1
        self._changed.wait(wait_s)
        self.live.resting -= 1
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
        if self._beside is not None and self.live.resting and len(self._policy.live):
            self._changed.notify_all()  # what is left is for the other lanes
        return flight

    def _fly(self, thread_index: int, flight: Flight) -> None:
        flight.is_watched = bool(flight.rows) or self.host_time.turns is not None
        began_s = time.thread_time() if flight.is_watched else 0.0
        prepared = [*parts_of(flight.rows), *(piece.prepared() for piece in flight.pieces)]
        if self.on_launch is not None and flight.rows:
            self.on_launch(flight.rows)
        if flight.is_watched:
            flight.began_cpu_s = time.thread_time()
            flight.formed_s = flight.began_cpu_s - began_s
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
        landed_s = time.thread_time() if flight.is_watched else 0.0
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
                self._recovery.recover(flight.rows, flight.pieces, result)
            else:
                deliver(flight.rows, flight.pieces, result, elapsed_s)
                if flight.is_watched:
                    ran_s, delivered_s = landed_s - flight.began_cpu_s, time.thread_time() - landed_s
                    rows, background = len(flight.rows), sum(map(len, flight.pieces))
                    self.host_time.observed(rows, background, flight.formed_s, ran_s, delivered_s)
        except BaseException as error:
            flight.abandon(as_broken(error))
            raise

    def _run_apart(self, rows: Sequence[LiveRow]) -> tuple[Columns | Exception, float]:
        """A call that the policy did not plan; it belongs into the books, too."""
        key = -1 - self._waiting.new_key()  # no planned call has it
        with self._lock:
            began_s = self._clock()
            self._device_time.began(key, began_s)
        result = waited(self._launched(parts_of(rows), True, self._slots[0]))
        with self._lock:
            ended_s = self._clock()
            device_s = self._device_time.ended(key, ended_s)
            self._counters.calls += 1
            tokens = sum(row.tokens for row in rows)
            self._policy.accounts.charge(Lane.ONLINE, 0, tokens, device_s)
            self._counters.paid(rows, device_s / max(1, tokens), anew=True)
        return result, ended_s - began_s
