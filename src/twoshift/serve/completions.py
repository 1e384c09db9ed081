"""Results from the engine's threads to the loop of the server, many with one wake-up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from twoshift.engine import RowFuture

__all__ = ["Completions"]


class _Pending:
    """Rows of one request that are not settled yet."""

    __slots__ = ("done", "left")

    def __init__(self, done: asyncio.Future[None], left: int) -> None:
        self.done, self.left = done, left


class Completions:
    """For the futures of however many engines; made on the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._settled: deque[_Pending] = deque()
        self._woken = False

    def all_of(self, futures: Sequence[RowFuture]) -> asyncio.Future[None]:
        """Done once every one of these is settled, whatever the results."""
        pending = _Pending(self._loop.create_future(), len(futures))

        def settled(_future: Any) -> None:  # in an engine's thread
            self._settled.append(pending)
            if not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self._deliver)

        for future in futures:
            future.add_done_callback(settled)
        return pending.done

    def _deliver(self) -> None:
        self._woken = False  # before the look: who comes after it wakes us again
        while self._settled:
            pending = self._settled.popleft()
            pending.left -= 1
            if not pending.left and not pending.done.done():
                pending.done.set_result(None)
