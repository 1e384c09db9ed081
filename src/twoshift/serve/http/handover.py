"""A connection goes to another process, whole: its socket, and what was read of it and not answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twoshift.serve.http.relay import relay_of

__all__ = ["Handover", "HandoverListener", "hand_over"]

_logger = logging.getLogger("twoshift.serve")
_LONGEST_BEGIN = 8 << 10  # without a whole line, from which on the parser says what is wrong with it
_PIECE_BYTES = 1 << 18
_GIVE_S = 5.0


class Handover:
    """Of a process that answers some requests itself."""

    def __init__(self, path: Path, is_local: Callable[[str, bytes], bool]) -> None:
        """`is_local` tells by a method and a target whether this process answers."""
        self._path, self.is_local = str(path), is_local
        self._giving: set[asyncio.Task[Any]] = set()

    def is_local_line(self, data: bytes) -> bool | None:
        """The same by a request's first bytes; None where its line is not whole. What is no line is told here."""
        if len(data) > _LONGEST_BEGIN:
            return True
        line, ended, _ = data.lstrip(b"\r\n").partition(b"\n")
        if not ended and (not line or line[:1].isalpha()):
            return None
        parts = line.removesuffix(b"\r").split(b" ")
        return not line.endswith(b"\r") or len(parts) != 3 or self.is_local(parts[0].decode("latin-1"), parts[1])

    def give(self, connection: Any, data: bytes) -> None:
        """The other process has it from now on; nothing is read here any more, unless to be passed on."""
        transport = connection.transport
        if transport.get_extra_info("ssl_object") is None:
            transport.pause_reading()
            given = os.dup(transport.get_extra_info("socket").fileno())
            transport.abort()  # its own copy of the socket: the connection stays
            giving = self._give(given, data)
        else:
            giving = self._relay(transport, connection, data)
        task = asyncio.get_running_loop().create_task(giving)
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)

    async def _relay(self, transport: Any, connection: Any, data: bytes) -> None:
        given = await relay_of(transport, connection)
        if await self._give(given, data) and not transport.is_closing():
            transport.resume_reading()
        else:
            transport.close()

    async def _give(self, given: int, data: bytes) -> bool:
        try:
            await hand_over(self._path, given, data)
        except OSError as error:  # its client sees that the connection is closed
            _logger.warning("a connection was closed, because it could not be passed to the main process: %s", error)
            return False
        finally:
            os.close(given)
        return True


async def hand_over(path: str, given: int, data: bytes) -> None:
    """Give a connection, by its file, and what was read of it to who listens at that path; raises OSError."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as way:
        way.setblocking(False)
        async with asyncio.timeout(_GIVE_S):  # a TimeoutError is an OSError
            await loop.sock_connect(way, path)
            socket.send_fds(way, [b"."], [given])
            if data:
                await loop.sock_sendall(way, data)


class HandoverListener:
    """Of the process that takes them; `take` gets each socket with what was read."""

    def __init__(self, path: Path, take: Callable[[socket.socket, bytes], Awaitable[None]]) -> None:
        self._take, self._loop = take, asyncio.get_running_loop()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(1024)
        self._listening.setblocking(False)
        self._taking: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept())

    def close(self) -> None:
        """Take no more."""
        self._accepting.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        while True:
            try:
                way, _ = await self._loop.sock_accept(self._listening)
            except OSError as error:
                _logger.warning("the main process cannot take over connections now: %s", error)
                await asyncio.sleep(0.1)
                continue
            task = self._loop.create_task(self._one(way))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _one(self, way: socket.socket) -> None:
        with way, contextlib.suppress(OSError, TimeoutError):
            way.setblocking(False)
            async with asyncio.timeout(_GIVE_S):
                await _readable(self._loop, way)
                data, given, _, _ = socket.recv_fds(way, 1, 1)
                if not given:
                    return
                accepted = socket.socket(fileno=given[0])
                accepted.setblocking(False)
                pieces = list[bytes]()
                while data := await self._loop.sock_recv(way, _PIECE_BYTES):
                    pieces.append(data)
            try:
                await self._take(accepted, b"".join(pieces))
            except OSError:  # its client has left
                accepted.close()


async def _readable(loop: asyncio.AbstractEventLoop, way: socket.socket) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(way, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(way)
