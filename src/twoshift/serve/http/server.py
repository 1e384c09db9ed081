"""A socket, its connections, and a sweep that ends those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from twoshift.serve.http.connection import Connection, Handler, HttpLimits, Refusal

__all__ = ["HttpServer"]

_SWEEP_S = 1.0
_BACKLOG = 2048


class HttpServer:
    """Listens once `start` was awaited; `drain` ends it in peace."""

    def __init__(self, handler: Handler, refusal: Refusal, limits: HttpLimits | None = None) -> None:
        self._handler, self._refusal, self.limits = handler, refusal, limits or HttpLimits()
        self._open: set[Connection] = set()
        self._server: Any = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """The port that it listens on; raises OSError where it cannot."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port, backlog=_BACKLOG, reuse_address=True)
        self._sweeper = loop.create_task(self._sweep())
        return int(self._server.sockets[0].getsockname()[1])

    async def drain(self, grace_s: float) -> bool:
        """Take no connection and no request any more, answer those that are read; False where time ran out."""
        self._server.close()
        for connection in tuple(self._open):
            connection.stop()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + grace_s
        while self._open and loop.time() < until_s:
            await asyncio.sleep(0.01)
        in_peace = not self._open
        for connection in tuple(self._open):
            connection.abort()
        assert self._sweeper is not None  # noqa: S101 - start made it
        self._sweeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper
        return in_peace

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def _connection(self) -> Connection:
        return Connection(self._handler, self._refusal, self.limits, self._open)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = loop.time()
            for connection in tuple(self._open):
                connection.sweep(now_s)
