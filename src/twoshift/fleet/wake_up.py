"""Requests that wait for the first replica of a fleet that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from twoshift.engine.stats import Queue
from twoshift.errors import Asleep

__all__ = ["WakeUp"]

_LOOK_S = 0.5  # between two looks whether replicas still start
_OVERDUE_S = 1.0  # when to come back where a start takes longer than the last one did


class WakeUp:
    """On the server's loop."""

    def __init__(self) -> None:
        self.wanted: Callable[[], None] = lambda: None  # who decides how many replicas there are looks at once
        self._waiting: dict[asyncio.Future[None], tuple[int, float]] = {}  # rows, since when

    def queue(self) -> Queue:
        """Who waits; any thread may ask."""
        waiting = [*self._waiting.values()]
        oldest_s = max((time.monotonic() - since_s for _, since_s in waiting), default=0.0)
        return Queue(sum(rows for rows, _ in waiting), oldest_s)

    def joined(self) -> None:
        """A replica can be asked."""
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, rows: int, deadline_s: float | None, left_s: Callable[[], float | None]) -> None:
        """Until a replica can be asked; raises Asleep where that is too late: told at once, or at the deadline where a
        start takes longer than the last one did.

        `left_s` says how long its start will take; None: there is no start to wait for.
        """
        self.wanted()
        if deadline_s is not None and (start_s := left_s()) is not None and deadline_s - time.monotonic() <= start_s:
            raise _asleep(start_s)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ready] = rows, time.monotonic()
        try:
            while not ready.done() and (start_s := left_s()) is not None:
                time_s = _LOOK_S if deadline_s is None else deadline_s - time.monotonic()
                if time_s <= 0:
                    raise _asleep(start_s)
                await asyncio.wait([ready], timeout=min(_LOOK_S, time_s))
        finally:
            del self._waiting[ready]


def _asleep(start_s: float) -> Asleep:
    return Asleep(
        f"the model is asleep (scaled to zero), and a replica is ready in about {start_s:.2g} s", start_s or _OVERDUE_S
    )
