"""Frames on their way to a front, from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

__all__ = ["Outgoing"]

_MOST_BYTES = 1 << 28  # that a front may leave unread, before it counts as gone


class Outgoing:
    """Whole frames: the engine's thread says what it launches before it does, on a call that may be its end.

    They go into the socket at once. What it has no room for waits here, and holds up nobody: other fronts read theirs.
    """

    def __init__(self, live: socket.socket) -> None:
        """Made on the loop; closes the socket."""
        live.setblocking(False)
        self._socket, self._loop = live, asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._unread = bytearray()  # what the socket had no room for
        self._is_closed = False

    def send(self, data: bytes) -> None:
        """Lost where nobody listens any more."""
        with self._lock:
            if self._is_closed:
                return
            if self._unread:
                self._unread += data
                if len(self._unread) > _MOST_BYTES:
                    self._hang_up()
                return
            sent = self._taken(data)
            if sent < len(data):
                self._unread += memoryview(data)[sent:]
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
                    self._loop.call_soon_threadsafe(self._watch)

    def close(self) -> None:
        """On the loop: nobody listens any more."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.remove_writer(self._socket)
                self._unread.clear()
                self._socket.close()

    def _taken(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:  # nobody listens any more: whoever reads from it is told
            return len(data)

    def _watch(self) -> None:
        if not self._is_closed:
            self._loop.add_writer(self._socket, self._drain)

    def _drain(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            del self._unread[: self._taken(self._unread)]
            if not self._unread:
                self._loop.remove_writer(self._socket)

    def _hang_up(self) -> None:
        self._unread.clear()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # whoever reads from it is told
