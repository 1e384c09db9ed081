"""So many a second, and a burst of it at once."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Bucket"]

_BURST_S = 10.0  # of its rate that may be used at once


class Bucket:
    """Of one thread, as the server's loop is."""

    __slots__ = ("_clock", "_filled_s", "_left", "_most", "_per_s")

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s, self._clock = per_s, clock
        self._most = max(1.0, per_s * _BURST_S)
        self._left, self._filled_s = self._most, clock()

    def wait_s(self) -> float:
        """Until one may be taken; 0 where that is now."""
        now_s = self._clock()
        self._left = min(self._most, self._left + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_s

    def take(self) -> None:
        """One."""
        self._left -= 1
