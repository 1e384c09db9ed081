"""So many a second, and a burst of it at once."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Bucket"]

_BURST_S = 10.0  # of its rate that may be used at once


class Bucket:
    """Of one thread; `state` may be seen by other processes, one at a time."""

    __slots__ = ("_clock", "_most", "_per_s", "_state")

    def __init__(self, per_s: float, clock: Callable[[], float], state: memoryview[float]) -> None:
        """`state`: how many are left, and when that was so; more than a burst is a burst."""
        self._per_s, self._clock, self._state = per_s, clock, state
        self._most = max(1.0, per_s * _BURST_S)

    def wait_s(self) -> float:
        """Until one may be taken; 0 where that is now."""
        state, now_s = self._state, self._clock()
        left = min(self._most, state[0] + (now_s - state[1]) * self._per_s)
        state[1] = now_s  # first: a process that is killed in between loses some, and makes none
        state[0] = left
        return 0.0 if left >= 1 else (1 - left) / self._per_s

    def take(self) -> None:
        """One."""
        self._state[0] -= 1
