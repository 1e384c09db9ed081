"""A body that is read as it comes in, no faster than it is used and no slower than is bearable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from twoshift.serve.http.http_error import HttpError

__all__ = ["BodyStream"]

_FULL_BYTES = 512 << 10  # that are held: nothing more is read until they are used
_LEAST_BYTES = 64 << 10  # that come within the time that a peer has between two pieces: a trickle is as bad as silence


class BodyStream:
    """Fed by a connection, read by a face; both on the loop."""

    def __init__(self, patience_s: float, full: Callable[[bool], None]) -> None:
        self._patience_s, self._tell_full = patience_s, full
        self._pieces: deque[bytes] = deque()
        self._held_bytes, self._is_full = 0, False
        self._error: HttpError | None = None
        self._came = asyncio.Event()
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether all of it has come: what is not read then does no harm."""
        return self._ended

    def feed(self, data: bytes) -> None:
        """The next piece."""
        self._pieces.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _FULL_BYTES and not self._is_full:
            self._is_full = True
            self._tell_full(True)
        self._came.set()

    def end(self) -> None:
        """That was all."""
        self._ended = True
        self._came.set()

    def fail(self, error: HttpError) -> None:
        """The rest cannot be read."""
        self._error = error
        self._came.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pieces in order; raises HttpError."""
        loop = asyncio.get_running_loop()
        due_s, came_bytes = loop.time() + self._patience_s, 0
        while True:
            if not self._pieces:
                if self._error is not None:
                    raise self._error
                if self._ended:
                    return
                await self._more(due_s)
                continue
            piece = b"".join(self._pieces)
            self._pieces.clear()
            self._held_bytes = 0
            came_bytes += len(piece)
            if self._is_full:
                self._is_full = False
                self._tell_full(False)
            began_s = loop.time()
            yield piece
            due_s += loop.time() - began_s  # the peer is not to blame for it
            if came_bytes >= _LEAST_BYTES:
                due_s, came_bytes = loop.time() + self._patience_s, 0

    async def _more(self, due_s: float) -> None:
        self._came.clear()
        try:
            async with asyncio.timeout_at(due_s):
                await self._came.wait()
        except TimeoutError:
            raise HttpError(408, "the body did not arrive in time") from None
