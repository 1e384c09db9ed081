"""A socket, its connections, and a sweep that ends those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import replace

from twoshift.serve.connection_counts import ConnectionCounts
from twoshift.serve.http.connection import Connection
from twoshift.serve.http.gate import Gate
from twoshift.serve.http.handover import Handover
from twoshift.serve.http.listener import Dealt, Listener
from twoshift.serve.http.peers import Admit, HttpLimits, Peers, Streams
from twoshift.serve.http.replies import Handler, Refusal, Replies

__all__ = ["HttpServer"]

_SWEEP_S = 1.0
_OTHER_FILES = 128  # that a process has open beside its connections


class HttpServer:
    """Listens once `start` was awaited; `drain` ends it in peace."""

    def __init__(
        self,
        handler: Handler,
        refusal: Refusal,
        limits: HttpLimits | None = None,
        sweep_s: float = _SWEEP_S,
        streams: Streams = lambda _method, _target: False,
        admit: Admit = lambda _request: None,
        gate: Gate | None = None,
        handover: Handover | None = None,
        counts: ConnectionCounts | None = None,
        dealt: Dealt | None = None,
    ) -> None:
        wanted = limits or HttpLimits()
        limits = replace(wanted, connections=_connections(wanted.connections))
        self.peers = Peers(limits, streams, admit, gate=gate, handover=handover, counts=counts)
        self._replies, self._sweep_s, self._dealt = Replies(handler, refusal), sweep_s, dealt
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """The port that it listens on; raises OSError where it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        await self.start_on([socket.create_server((host, port), family=family)])
        return self._listeners[0].port

    async def start_on(self, sockets: Sequence[socket.socket]) -> None:
        """On these, which are bound; they are its own from now on."""
        self._listeners = [Listener(each, self._connection, self._dealt) for each in sockets]
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def take_over(self, accepted: socket.socket, data: bytes) -> None:
        """A connection that another process has accepted, with what it has read of it; then closed after one reply."""

        def made() -> Connection:
            return Connection(self._replies, self.peers, data)

        await asyncio.get_running_loop().connect_accepted_socket(made, accepted)

    async def drain(self, grace_s: float, hurry: asyncio.Event | None = None) -> bool:
        """Take no connection and no request any more, answer those that are read; False where time ran out.

        `hurry`, once it is set, is the end of the time.
        """
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self.peers.open):
            connection.stop()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + grace_s
        while self.peers.open and loop.time() < until_s and not (hurry and hurry.is_set()):
            await asyncio.sleep(0.01)
        in_peace = not self.peers.open
        for connection in tuple(self.peers.open):
            connection.abort()
        assert self._sweeper is not None  # noqa: S101 - start made it
        self._sweeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper
        self.peers.large.close()
        return in_peace

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.peers.open)

    def _connection(self) -> Connection:
        return Connection(self._replies, self.peers)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._sweep_s)
            now_s = loop.time()
            for connection in tuple(self.peers.open):
                connection.sweep(now_s)


def _connections(wanted: int) -> int:
    """As many as the process may have files for: it asks for more where it has too few."""
    try:
        import resource
    except ImportError:  # no such limit here
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + _OTHER_FILES:
        more = wanted + _OTHER_FILES if hard == resource.RLIM_INFINITY else min(hard, wanted + _OTHER_FILES)
        with contextlib.suppress(ValueError, OSError):  # a system may allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHER_FILES))
