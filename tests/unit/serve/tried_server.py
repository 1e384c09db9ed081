"""A server in a thread of its own, for raw sockets to try."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.peers import HttpLimits
from twoshift.serve.http.server import HttpServer
from waiting import until

WAIT_S = 20.0  # against hangs

BIG = 16 << 20


class TriedServer:
    """Answers with what it was asked; /slow waits for the gate, /big is more than the kernel buffers.

    /broken and /unwritable fail before and while the reply is written.
    """

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.cancelled = 0
        self.failures: list[dict[str, Any]] = []  # that nobody caught
        self.port = 0
        self.server: Any = None
        self._gate: Any = None
        self._loop = uvloop.new_event_loop()
        self._loop.set_exception_handler(lambda _, about: self.failures.append(about))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    async def _handle(self, request: Request) -> Reply:
        self.asked.append(request)
        if request.path == "/slow":
            try:
                await self._gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if request.path == "/broken":
            raise RuntimeError("a handler that fails")
        if request.path == "/unwritable":
            return Reply(200, b"", headers=[(b"a", None)])  # type: ignore[list-item]
        body = b"%b %b %d" % (request.method.encode(), request.target, len(request.body))
        return Reply(200, b"x" * BIG if request.path == "/big" else body, b"text/plain")

    @staticmethod
    def _refused(error: HttpError) -> Reply:
        return Reply(error.status, str(error).encode(), b"text/plain", close=True)

    def start(self, limits: HttpLimits) -> None:
        self._thread.start()
        self.call(self._start, limits)

    async def _start(self, limits: HttpLimits) -> None:
        self._gate = asyncio.Event()
        self.server = self.made(limits)
        self.port = await self.server.start("127.0.0.1", 0)

    def made(self, limits: HttpLimits) -> HttpServer:
        """The server that is tried."""
        return HttpServer(self._handle, self._refused, limits, sweep_s=0.02)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """On the server's loop."""
        return asyncio.run_coroutine_threadsafe(function(*arguments), self._loop).result(WAIT_S)

    def open_gate(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.set)

    def end(self) -> None:
        self.open_gate()
        self.call(self.server.drain, 0.5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S) as made:
            yield made

    def said_to(self, *pieces: bytes) -> bytes:
        """All that comes until the server closes, after these pieces."""
        with self.connection() as made:
            for piece in pieces:
                made.sendall(piece)
            return everything(made)

    until = staticmethod(until)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other end closes."""
    found = bytearray()
    while data := connection.recv(1 << 16):
        found += data
    return bytes(found)


def parted(replies: bytes, head: bool = False) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of each reply, in order; there is nothing else."""
    found = []
    while replies:
        top, _, replies = replies.partition(b"\r\n\r\n")
        first, *lines = top.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = 0 if head else int(headers.get("content-length", 0))
        found.append((int(first.split()[1]), headers, replies[:size]))
        replies = replies[size:]
    return found


def statuses(replies: bytes) -> list[int]:
    """Of each reply, in order."""
    return [status for status, _, _ in parted(replies)]
