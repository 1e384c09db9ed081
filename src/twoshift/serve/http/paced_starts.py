"""Requests begin a few in each turn of the loop, so that finished ones are replied to between them."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["PacedStarts"]

_TURN_BYTES = 64 << 10  # of bodies that begin in one turn


class PacedStarts:
    """Of one loop.

    What is parsed takes ten times the memory of what is only read. Where hundreds of large requests were parsed before
    the first is replied to, they would not fit into the processor's cache, and each would cost half as much again.
    """

    def __init__(self) -> None:
        self._left_bytes = _TURN_BYTES  # of this turn
        self._is_counting = False  # `_next` is due
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def turn(self, size: int) -> asyncio.Future[None] | None:
        """None where a request with a body of so many bytes begins now; else what is done once it may."""
        loop = asyncio.get_running_loop()
        if not self._is_counting:
            self._is_counting = True
            loop.call_soon(self._next)
        if self._left_bytes > 0 and not self._waiting:
            self._left_bytes -= size
            return None
        turn = loop.create_future()
        self._waiting.append((turn, size))
        return turn

    def _next(self) -> None:
        """Another turn of the loop."""
        waiting, left_bytes = self._waiting, _TURN_BYTES
        while waiting and left_bytes > 0:
            turn, size = waiting.popleft()
            if not turn.done():  # its client has gone
                turn.set_result(None)
                left_bytes -= size
        self._left_bytes = left_bytes
        self._is_counting = left_bytes < _TURN_BYTES
        if self._is_counting:
            asyncio.get_running_loop().call_soon(self._next)
