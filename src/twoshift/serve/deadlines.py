"""Many deadlines to few timers: a timer for each request would cost more than all else that waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

T = TypeVar("T", bound=Hashable)
_TICK_S = 0.005  # a deadline is told at most so much later


class Deadlines(Generic[T]):
    """Of one loop; `expired` is told what was not forgotten by its deadline."""

    def __init__(self, expired: Callable[[T], None]) -> None:
        self._loop, self._expired = asyncio.get_running_loop(), expired
        self._due: dict[int, set[T]] = {}  # by tick

    def add(self, what: T, deadline_s: float) -> int:
        """Its tick, which `forget` takes."""
        tick = int(deadline_s / _TICK_S) + 1
        if tick not in self._due:
            self._due[tick] = set()
            self._loop.call_later(max(0.0, tick * _TICK_S - time.monotonic()), self._expire, tick)
        self._due[tick].add(what)
        return tick

    def forget(self, what: T, tick: int) -> None:
        """It is answered, or nobody waits for it."""
        if tick in self._due:
            self._due[tick].discard(what)

    def _expire(self, tick: int) -> None:
        for what in self._due.pop(tick):
            self._expired(what)
