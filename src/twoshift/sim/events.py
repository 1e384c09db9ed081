"""Virtual time: what happens next, in order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

__all__ = ["ARRIVE", "DECIDE", "END", "Act", "EventQueue"]

Act = Callable[[float], None]  # called with the time

ARRIVE, END, DECIDE = range(3)  # the order at one moment: a decision sees all that arrived or ended by then
_REPORT_EVERY = 1024  # events


class EventQueue:
    """A heap of moments. Those of one time and rank go in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Act]] = []
        self._added = itertools.count()

    def at(self, at_s: float, rank: int, act: Act) -> None:
        """Call `act` at that time."""
        heapq.heappush(self._heap, (at_s, rank, next(self._added), act))

    def run(self, progress: Callable[[float], None] | None = None) -> None:
        """Until nothing is left; `progress` hears the time now and then."""
        heap = self._heap
        for number in itertools.count():
            if not heap:
                return
            at_s, _, _, act = heapq.heappop(heap)
            if progress is not None and number % _REPORT_EVERY == 0:
                progress(at_s)
            act(at_s)
