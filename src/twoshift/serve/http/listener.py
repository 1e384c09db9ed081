"""A listening socket that takes every connection that waits, each time the loop comes to it.

uvloop's own server takes one in a turn of the loop. Under load a turn is long, and a client that connects would
wait for as many turns as there are connections before it: seconds that no deadline counts.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

__all__ = ["Dealt", "Listener"]

Dealt = Callable[[socket.socket], Awaitable[bool]]

_logger = logging.getLogger("twoshift.serve")
_BACKLOG = 2048
_AT_ONCE = 256  # connections taken in a turn: those that are open must have theirs, too
_REST_S = 1.0  # where the system has no files or memory left for another one
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts until it is closed; the socket is bound, and its own."""

    def __init__(
        self, bound: socket.socket, enter: Callable[[socket.socket], Awaitable[None]], dealt: Dealt | None = None
    ) -> None:
        """`enter` has a new connection from now on, or raises OSError.

        `dealt` gives it to another process, where that shall have it; whether it did.
        """
        self._socket, self._take, self._dealt = bound, enter, dealt
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(_BACKLOG)
        self._listen()

    @property
    def port(self) -> int:
        """The one that it listens on."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Take no connection any more; those that are open stay. It may be told so twice."""
        if self._socket.fileno() < 0:
            return
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _listen(self) -> None:
        self._rest = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # it left while it waited
                continue
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                _logger.warning("new connections cannot be accepted now: %s", error)
                self._loop.remove_reader(self._socket)
                self._rest = self._loop.call_later(_REST_S, self._listen)
                return
            task = self._loop.create_task(self._enter(accepted))
            self._entering.add(task)  # the loop itself would forget it
            task.add_done_callback(self._entering.discard)

    async def _enter(self, accepted: socket.socket) -> None:
        if self._dealt is not None and await self._dealt(accepted):
            accepted.close()
            return
        try:
            await self._take(accepted)
        except OSError:  # it left
            accepted.close()
