"""The interpreter under a virtual clock: one server in front of a device and behind it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

from twoshift.policy.host import HostPolicy, HostWork
from twoshift.sim.events import ARRIVE, Act, EventQueue

__all__ = ["HostCosts", "SimulatedHost"]

_KNOWN = 64  # requests that a policy has seen before the simulation begins


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What a request costs outside the device, in seconds of the interpreter: so much, and more with its bytes."""

    before_s: float = 0.0  # read, parse, prepare
    before_byte_s: float = 0.0
    after_s: float = 0.0  # reply
    after_byte_s: float = 0.0
    refusal_s: float = 0.0

    def before(self, size_bytes: int) -> float:
        """Of a request of so many bytes."""
        return self.before_s + size_bytes * self.before_byte_s

    def after(self, size_bytes: int) -> float:
        """Of its reply."""
        return self.after_s + size_bytes * self.after_byte_s

    @property
    def is_nothing(self) -> bool:
        """Whether there is no host to speak of."""
        return self == HostCosts()

    def policy(self, size_bytes: int) -> HostPolicy:
        """A policy that has served such requests for a while."""
        made = HostPolicy()
        for number in range(_KNOWN):
            each = size_bytes * (1 + number % 2)
            made.before.observed(each, self.before(each))
            made.after.observed(each, self.after(each))
            made.refusal.observed(0, self.refusal_s)
        return made


class SimulatedHost:
    """Does one thing after the other, in the order in which they came."""

    def __init__(self, events: EventQueue, costs: HostCosts | None, typical_bytes: int | None) -> None:
        """`typical_bytes` of a request; None: nobody is refused here."""
        self.busy_s = 0.0
        self.costs = costs or HostCosts()
        self.policy: HostPolicy | None = None
        if typical_bytes is not None and not self.costs.is_nothing:
            self.policy = self.costs.policy(typical_bytes)
        self.on_idle: Act | None = None
        self._events = events
        self._queue: deque[tuple[float, Act]] = deque()
        self._is_busy = False

    def __len__(self) -> int:
        """What waits, without what is being done."""
        return len(self._queue)

    def do(self, seconds: float, then: Act, now_s: float) -> None:
        """Work for so long, then call `then`; what costs nothing on an idle host is done at once."""
        if not seconds and not self._is_busy:
            then(now_s)
            return
        self._queue.append((seconds, then))
        if not self._is_busy:
            if self.policy is not None:
                self.policy.woke(now_s)
            self._begin(now_s)

    # Who comes in, as its policy has it; everybody where there is none

    def admits(self, size_bytes: int, left_s: float, device_s: float, now_s: float) -> bool:
        """Whether a request that has so much time left is let in; the device takes `device_s` until its answer."""
        return self.policy is None or self.policy.wait_s(size_bytes, left_s, now_s, device_s) is None

    def enter(self, size_bytes: int) -> HostWork | None:
        """It is let in; what this returns goes to `submitted` and `ended`."""
        return None if self.policy is None else self.policy.admitted(size_bytes)

    def reserve_s(self, had_s: float, now_s: float, kept_s: float = 0.0) -> float:
        """What is kept of a request's time for its reply, beside what was kept in front."""
        return 0.0 if self.policy is None else self.policy.reserve_s(had_s, now_s, kept_s)

    def submitted(self, work: HostWork | None) -> None:
        """It is with a device."""
        if self.policy is not None and work is not None:
            self.policy.submitted(work, self.costs.before(work.size))

    def ended(self, work: HostWork | None, was_submitted: bool) -> None:
        """It has its reply, or a refusal."""
        if self.policy is not None and work is not None:
            self.policy.ended(work, was_submitted)

    def replied(self, size_bytes: int, lag_s: float, late_s: float | None, now_s: float) -> None:
        """`lag_s` after its result; `late_s` is the time that it had, where that was not enough."""
        if self.policy is None:
            return
        self.policy.replied(size_bytes, self.costs.after(size_bytes), lag_s, now_s)
        if late_s is not None:
            self.policy.was_late(late_s, now_s)

    def _begin(self, now_s: float) -> None:
        seconds, then = self._queue.popleft()
        self._is_busy = True
        self.busy_s += seconds
        self._events.at(now_s + seconds, ARRIVE, partial(self._end, then))

    def _end(self, then: Act, now_s: float) -> None:
        if self.policy is not None:
            self.policy.worked(0.0, now_s)
        then(now_s)  # what that brings goes to the end of the queue
        if self._queue:
            self._begin(now_s)
            return
        self._is_busy = False
        if self.on_idle is not None:
            self.on_idle(now_s)
