"""What a connection has read for another process: it goes there with the connection, in its turn."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from twoshift.serve.http.handover import Handover
from twoshift.serve.http.messages import Request
from twoshift.serve.http.reading import Reading

__all__ = ["Departing", "Departure"]

_SOON_S = 0.001


class Departing(Protocol):
    """The connection."""

    transport: Any

    @property
    def is_free(self) -> bool:
        """Whether the next request has its turn at once."""
        ...

    def head_began(self) -> None: ...

    def fill(self, what: str, full: bool) -> None:
        """Nothing is read while something is full."""
        ...

    def depart(self) -> None:
        """It stays only to be counted, until it is closed."""
        ...

    def stop(self) -> None:
        """No request after those that are read."""
        ...


class Departure:
    """Of one connection, on its loop."""

    def __init__(self, handover: Handover, connection: Departing, reading: Reading) -> None:
        self._handover, self._connection, self._reading = handover, connection, reading
        self._loop = asyncio.get_running_loop()
        self.data = b""  # read, and not answered here; or the beginning of a line that does not tell yet

    def takes(self, data: bytes) -> bool:
        """Whether another process answers what begins here; it waits until the line that says so is whole."""
        if not self._reading.between:
            return False
        if not self.data:
            self._connection.head_began()
        self.data += data
        is_local = self._handover.is_local_line(self.data)
        if is_local:
            return False
        if is_local is not None:
            self.begin()
        return True

    def unread(self, data: bytes) -> bytes:
        """With what has come of its first line before."""
        if self.data:
            data, self.data = self.data, b""
        return data

    def takes_along(self, request: Request) -> bool:
        """Whether a request goes, too, that came in one piece with others, and all that come behind it.

        Who sends requests ahead must be ready to send some of them again: a body ends the connection.
        """
        if not self.data and self._handover.is_local(request.method, request.target):
            return False
        if request.has_body:
            self._connection.stop()
        else:
            self.data += request.head()
        return True

    def begin(self) -> None:
        """Nothing more is read here."""
        if self._reading.between:
            self._connection.fill("elsewhere", True)
            self.go()
        else:
            self._connection.stop()

    def go(self) -> None:
        """Once what was asked before is answered, and the peer has taken it."""
        transport = self._connection.transport
        if transport.is_closing() or not self._connection.is_free:
            return
        if transport.get_write_buffer_size():
            self._loop.call_later(_SOON_S, self.go)
            return
        self._connection.depart()
        self._handover.give(self._connection, self.data)
