"""Requests of a connection that the gate refuses unread: without a task, at once or as their turn comes."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from twoshift.serve.http.gate import Gate
from twoshift.serve.http.messages import Request

__all__ = ["Refusable", "UnreadRefusals"]

_SOON_S = 0.001  # a refusal that is due in less is written at once


class Refusable(Protocol):
    """The connection."""

    transport: Any

    def is_last(self, request: Request) -> bool:
        """Whether the connection is closed after this request, which is the only one that is read."""
        ...

    def resume(self) -> None:
        """Its refusal is written: what came behind it has its turn."""
        ...


class UnreadRefusals:
    """Of one connection, on its loop."""

    def __init__(self, gate: Gate, connection: Refusable) -> None:
        self.gate, self._connection = gate, connection
        self._loop, self._connected_s = asyncio.get_running_loop(), time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def refuse(self, request: Request) -> bool:
        """At once, since it may cost but little; whether it is held, where too many would be written at once."""
        request.give_room()
        if (wait_s := self.gate.refuse_in_s(self._connected_s)) <= _SOON_S:
            self._write(request)
            return False
        self._timer = self._loop.call_later(wait_s, self._release, request)
        return True

    def cancel(self) -> None:
        """The connection is lost."""
        if self._timer is not None:
            self._timer.cancel()

    def _write(self, request: Request, held: bool = False) -> None:
        began_s = time.monotonic()
        connection = self._connection
        connection.transport.write(self.gate.refused(request, held, connection.is_last(request)))
        self.gate.wrote(began_s)

    def _release(self, request: Request) -> None:
        if not self._connection.transport.is_closing():
            self._write(request, held=True)
            self._connection.resume()
