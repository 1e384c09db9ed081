"""A TLS connection whose requests another process answers: the keys stay here, so its bytes are passed on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

__all__ = ["relay_of"]


class _Side(asyncio.Protocol):
    """One of two connections: what it reads is written to the other one, no faster than that takes it."""

    def __init__(self, transport: Any, then: asyncio.Protocol | None = None) -> None:
        """`then` is told when the connection is lost."""
        self.transport, self._then = transport, then
        self.other: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.close()  # once what was written is sent
        if self._then is not None:
            self._then.connection_lost(exc)


async def relay_of(transport: Any, connection: asyncio.Protocol) -> int:
    """A file that reads and writes what the transport does from now on; the caller closes it. Raises OSError."""
    near, given = socket.socketpair()
    near.setblocking(False)
    inner, outer = _Side(None), _Side(transport, connection)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: inner, near)
    outer.other, inner.other = inner.transport, transport
    transport.set_protocol(outer)
    if transport.is_closing():
        inner.transport.close()
    return given.detach()
