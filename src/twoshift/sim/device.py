"""One device under a virtual clock, driven by the very policies that production runs, as its engine drives them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from twoshift.policy.background_queue import Block
from twoshift.policy.device_time import DeviceTime
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.sim.events import DECIDE, END, EventQueue
from twoshift.sim.truth import ChangingTruth, DeviceTruth
from twoshift.types import Item

__all__ = ["DeviceUse", "RowOwner", "SimBacklog", "SimulatedDevice", "slots_of"]


class RowOwner(Protocol):
    """Who hears what becomes of live rows."""

    def launched(self, items: Sequence[Item], now_s: float) -> None:
        """They are on the device."""
        ...

    def answered(self, items: Sequence[Item], now_s: float) -> None:
        """Their call has ended."""
        ...

    def dropped(self, items: Sequence[Item], now_s: float) -> None:
        """They can no longer make it."""
        ...


@dataclass(slots=True)
class SimBacklog:
    """Background rows without end, until the horizon."""

    lengths: Sequence[int]  # of the rows of a block; empty: there are none
    horizon_s: float
    blocks: int = 0  # so far

    def refill(self, policy: LanePolicy, now_s: float) -> None:
        """Keep a block waiting."""
        if self.lengths and now_s < self.horizon_s and not policy.background:
            policy.submit_block(Block(self.blocks, self.lengths), now_s)
            self.blocks += 1


@dataclass(slots=True)
class DeviceUse:
    """What a device did until the horizon. Calls side by side share its time, so that busy time is at most that."""

    background_rows: int = 0
    live_s: float = 0.0
    background_s: float = 0.0
    calls: int = 0

    def add(self, call: Call, device_s: float) -> None:
        """A call has ended."""
        tokens = sum(part.tokens for part in call.background)
        self.background_rows += sum(part.stop - part.start for part in call.background)
        self.background_s += device_s * tokens / call.size.tokens
        self.live_s += device_s * (1 - tokens / call.size.tokens)
        self.calls += 1


@dataclass(slots=True, eq=False)
class _Flight:
    """A call between its launch and its end."""

    call: Call
    luck: float
    seconds: float = 0.0  # that all of it takes, at the speed it has now
    began_s: float = 0.0  # when it had the device
    at_s: float = 0.0  # when its speed last changed
    done: float = 0.0  # share of its work by then
    is_beside: bool = False
    changes: int = 0  # of its speed

    @property
    def end_s(self) -> float:
        return self.at_s + (1.0 - self.done) * self.seconds

    @property
    def elapsed_s(self) -> float:
        return self.seconds if not self.changes else self.end_s - self.began_s


@dataclass(slots=True, eq=False)
class _Thread:
    """One of the engine's threads: it decides, launches, waits for its call."""

    slot: Slot
    flying: deque[_Flight] = field(default_factory=deque[_Flight])
    is_resting: bool = True


def slots_of(limits: LaneLimits) -> tuple[Slot, ...]:
    """The engine's threads, a slot each."""
    return (Slot.LIVE, Slot.BACKGROUND) if limits.background_depth else (Slot.SHARED,) * limits.lanes


class SimulatedDevice:
    """Runs what its policy decides; a call lasts what the truth says."""

    def __init__(
        self,
        events: EventQueue,
        policy: LanePolicy,
        truth: DeviceTruth | ChangingTruth,
        luck: Callable[[], float],
        owner: RowOwner,
        backlog: SimBacklog,
        is_over: Callable[[float], bool],  # nobody will submit more live rows, and the horizon is past
    ) -> None:
        self.policy, self.use = policy, DeviceUse()
        self._events, self._truth, self._luck = events, truth, luck
        self._owner, self._backlog, self._is_over = owner, backlog, is_over
        self._threads = [_Thread(slot) for slot in slots_of(policy.limits)]
        self._time = DeviceTime()
        self._woken_s = -1.0  # when the threads that rest look next

    @property
    def is_resting(self) -> bool:
        """Whether some thread looks at what was submitted only when it is woken."""
        return any(thread.is_resting for thread in self._threads)

    def wake(self, now_s: float) -> None:
        """The threads that rest look at what was submitted, after all else of this moment."""
        if self._woken_s != now_s and self.is_resting:
            self._woken_s = now_s
            self._events.at(now_s, DECIDE, self._look_all)

    def _look_all(self, now_s: float) -> None:
        self._woken_s = -1.0
        for thread in self._threads:
            if thread.is_resting:
                self._look(thread, now_s)

    def _look(self, thread: _Thread, now_s: float) -> None:
        """Turns of one thread, until it waits for a call or rests."""
        thread.is_resting = False
        while True:
            if self._is_over(now_s) and not len(self.policy.live):
                thread.is_resting = not thread.flying
                return
            self._backlog.refill(self.policy, now_s)
            decision = self.policy.decide(now_s, thread.slot)
            if isinstance(decision, Run):
                self._launch(thread, decision.call, now_s)
                if decision.call.slot is not Slot.BACKGROUND:  # where the next one is launched first
                    return
            elif isinstance(decision, Drop):
                self._owner.dropped(decision.live, now_s)
                if decision.background:
                    self._backlog.lengths = ()  # it fits no call: an endless backlog would be dropped for ever
            else:
                self._rest(thread, decision, now_s)
                return

    def _rest(self, thread: _Thread, idle: Idle, now_s: float) -> None:
        if thread.flying:
            return
        thread.is_resting = True
        if idle.until_s is not None:
            self._events.at(max(now_s, idle.until_s), DECIDE, partial(self._look_again, thread))

    def _look_again(self, thread: _Thread, now_s: float) -> None:
        if thread.is_resting:
            self._look(thread, now_s)

    def _launch(self, thread: _Thread, call: Call, now_s: float) -> None:
        flight = _Flight(call, self._luck())
        thread.flying.append(flight)
        if len(thread.flying) == 1:
            self._begin(thread, flight, now_s)
        if call.live:
            self._owner.launched(call.live, now_s)
        if len(self._threads) > 1 and thread.slot is Slot.SHARED and len(self.policy.live):
            self.wake(now_s)  # what is left is for the other lanes

    def _begin(self, thread: _Thread, flight: _Flight, now_s: float) -> None:
        """The call has the device."""
        self._time.began(flight.call.number, now_s)
        others = [(other, first) for other, first in self._flying() if first is not flight]
        flight.began_s = flight.at_s = now_s
        flight.is_beside = bool(others)
        flight.seconds = self._seconds(flight)
        self._events.at(flight.end_s, END, partial(self._end, thread, flight, 0))
        self._change_speed(others, True, now_s)

    def _end(self, thread: _Thread, flight: _Flight, change: int, now_s: float) -> None:
        if change != flight.changes:
            return  # its speed has changed since: it ends at another time
        thread.flying.popleft()
        device_s = self._time.ended(flight.call.number, now_s)
        if thread.flying:
            self._begin(thread, thread.flying[0], now_s)
        left = list(self._flying())
        if len(left) == 1:
            self._change_speed(left, False, now_s)
        if len(self._threads) == 1:
            device_s = flight.elapsed_s  # the same, without the rounding of a sum
        self.policy.finished(flight.call, flight.elapsed_s, False, device_s)
        if now_s <= self._backlog.horizon_s:
            self.use.add(flight.call, device_s)
        if flight.call.live:
            self._owner.answered(flight.call.live, now_s)
        if flight.call.slot is Slot.WHOLE:
            self.wake(now_s)  # the other lanes have waited for it
        self._events.at(now_s, DECIDE, partial(self._look, thread))

    def _flying(self) -> Iterable[tuple[_Thread, _Flight]]:
        """The calls that have the device."""
        return [(thread, thread.flying[0]) for thread in self._threads if thread.flying]

    def _change_speed(self, flights: Iterable[tuple[_Thread, _Flight]], is_beside: bool, now_s: float) -> None:
        for thread, flight in flights:
            if flight.is_beside == is_beside or not self._truth.at(now_s).minds_company(flight.call.slot):
                continue
            flight.done += (now_s - flight.at_s) / flight.seconds
            flight.at_s, flight.is_beside = now_s, is_beside
            flight.seconds = self._seconds(flight)
            flight.changes += 1
            self._events.at(flight.end_s, END, partial(self._end, thread, flight, flight.changes))

    def _seconds(self, flight: _Flight) -> float:
        truth = self._truth.at(flight.at_s)
        return truth.seconds(flight.call.slot, flight.call.size, flight.is_beside, flight.luck)
