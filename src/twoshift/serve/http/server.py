"""A socket, its connections, and a sweep that ends those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twoshift.serve.connection_counts import ConnectionCounts
from twoshift.serve.http.connection import Connection
from twoshift.serve.http.handover import Handover
from twoshift.serve.http.listener import Dealt, Listener
from twoshift.serve.http.peers import HeadDecisions, HttpLimits, Peers
from twoshift.serve.http.replies import Handler, Refusal, Replies
from twoshift.serve.tls import TlsFiles

__all__ = ["HttpServer", "SharedPort"]

_SWEEP_S = 1.0
_HANDSHAKES = 512  # of TLS at a time: the oldest goes for another one
_OTHER_FILES = 128  # that a process has open beside its connections


@dataclass(frozen=True, slots=True)
class SharedPort:
    """What several processes that listen on one port have in common."""

    handover: Handover | None = None  # of connections whose requests another process answers
    counts: ConnectionCounts | None = None  # of the connections of all of them
    dealt: Dealt | None = None  # whether another process has taken a new connection


class HttpServer:
    """Listens once `start` was awaited; `drain` ends it in peace."""

    def __init__(
        self,
        handler: Handler,
        refusal: Refusal,
        limits: HttpLimits | None = None,
        decisions: HeadDecisions | None = None,
        shared: SharedPort | None = None,  # None: no other process listens there
        tls: TlsFiles | None = None,
        sweep_s: float = _SWEEP_S,
    ) -> None:
        wanted = limits or HttpLimits()
        limits = replace(wanted, connections=_connections(wanted.connections, 0 if tls is None else _HANDSHAKES))
        shared = shared or SharedPort()
        self.peers = Peers(limits, decisions, shared.handover, shared.counts)
        self._replies, self._sweep_s, self._dealt = Replies(handler, refusal), sweep_s, shared.dealt
        self._tls = tls
        self._shaking: dict[Any, None] = {}  # tasks, the oldest first
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """The port that it listens on; raises OSError where it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        await self.start_on([socket.create_server((host, port), family=family)])
        return self._listeners[0].port

    async def start_on(self, sockets: Sequence[socket.socket]) -> None:
        """On these, which are bound; they are its own from now on."""
        self._listeners = [Listener(each, self._enter, self._dealt) for each in sockets]
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def take_over(self, accepted: socket.socket, data: bytes) -> None:
        """A connection that another process has accepted, with what it has read of it; then closed after one reply."""
        await self._enter(accepted, data)

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

    async def _enter(self, accepted: socket.socket, data: bytes = b"") -> None:
        def made() -> Connection:
            return Connection(self._replies, self.peers, data)

        loop = asyncio.get_running_loop()
        if self._tls is None or data:  # who has read some of it has the keys, and passes on what they open
            await loop.connect_accepted_socket(made, accepted)
        else:
            await self._shake_hands(made, accepted, self._tls.context)

    async def _shake_hands(
        self, made: Callable[[], Connection], accepted: socket.socket, context: ssl.SSLContext
    ) -> None:
        task, limit_s = asyncio.current_task(), self.peers.limits.head_s
        self._shaking[task] = None
        if len(self._shaking) > _HANDSHAKES:
            next(iter(self._shaking)).cancel()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                made, accepted, ssl=context, ssl_handshake_timeout=limit_s, ssl_shutdown_timeout=limit_s
            )
        finally:
            self._shaking.pop(task, None)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._sweep_s)
            now_s = loop.time()
            if self._tls is not None:
                self._tls.refresh()
            for connection in tuple(self.peers.open):
                connection.sweep(now_s)


def _connections(wanted: int, more: int) -> int:
    """As many as the process may have files for: it asks for more where it has too few."""
    try:
        import resource
    except ImportError:  # no such limit here
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = _OTHER_FILES + more
    if soft != resource.RLIM_INFINITY and soft < wanted + others:
        more = wanted + others if hard == resource.RLIM_INFINITY else min(hard, wanted + others)
        with contextlib.suppress(ValueError, OSError):  # a system may allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - others))
