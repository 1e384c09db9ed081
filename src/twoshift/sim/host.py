"""The interpreter under a virtual clock: one server in front of a device and behind it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

from twoshift.sim.events import ARRIVE, Act, Events

__all__ = ["HostCosts", "SimulatedHost"]


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What a request costs outside the device, in seconds of the interpreter."""

    before_s: float = 0.0  # read, parse, prepare
    before_row_s: float = 0.0
    after_s: float = 0.0  # reply
    after_row_s: float = 0.0
    refusal_s: float = 0.0

    def before(self, rows: int) -> float:
        """Of a request of so many rows."""
        return self.before_s + rows * self.before_row_s

    def after(self, rows: int) -> float:
        """Of its reply."""
        return self.after_s + rows * self.after_row_s


class SimulatedHost:
    """Does one thing after the other, in the order in which they came."""

    def __init__(self, events: Events) -> None:
        self.busy_s = 0.0
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
            self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        seconds, then = self._queue.popleft()
        self._is_busy = True
        self.busy_s += seconds
        self._events.at(now_s + seconds, ARRIVE, partial(self._end, then))

    def _end(self, then: Act, now_s: float) -> None:
        then(now_s)  # what that brings goes to the end of the queue
        if self._queue:
            self._begin(now_s)
            return
        self._is_busy = False
        if self.on_idle is not None:
            self.on_idle(now_s)
