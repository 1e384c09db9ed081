"""The replies of one connection on their way out, no faster than the peer takes them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from twoshift.serve.http.framing import Framing
from twoshift.serve.http.messages import UNFORESEEN, Pieces, Reply

__all__ = ["NEVER_S", "Writable", "Writing"]

_logger = logging.getLogger("twoshift.serve")
_TAKEN_BYTES = 64 << 10  # of a reply, that a peer takes at least in the time that it has
NEVER_S = float("inf")


class Writable(Protocol):
    """The connection."""

    transport: Any
    due_s: float


class Writing:
    """Of one connection, on its loop."""

    __slots__ = ("_connection", "_unsent_bytes", "can_write", "pours")

    def __init__(self, connection: Writable) -> None:
        self._connection = connection
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.pours = False  # a reply in pieces
        self._unsent_bytes = 0  # of replies, when the peer's time began

    def write(self, reply: Reply, framing: Framing) -> Reply:
        """What was written, but for its pieces: the reply, or another one where it cannot be encoded."""
        try:
            encoded = reply.encoded(framing.keep, framing.without_body, framing.chunked)
        except Exception:
            _logger.exception("an HTTP reply could not be written")
            reply = UNFORESEEN
            encoded = reply.encoded(keep_alive=False, without_body=framing.without_body)
        connection = self._connection
        if reply.stream is not None:
            self.pours, connection.due_s = True, NEVER_S
        if not connection.transport.is_closing():
            connection.transport.write(encoded)
        return reply

    async def pour(self, stream: Pieces, framing: Framing) -> None:
        """The pieces of a reply, no faster than the peer takes them."""
        connection = self._connection
        transport = connection.transport
        try:
            async for piece in stream:  # one that was never begun would not notice its end
                if framing.without_body or transport.is_closing():
                    return
                transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if framing.chunked else piece)
                if not self.can_write.is_set():
                    await self.can_write.wait()
                    connection.due_s = NEVER_S
            if framing.chunked and not transport.is_closing():
                transport.write(b"0\r\n\r\n")
        except Exception:
            _logger.exception("an HTTP reply was truncated")
            transport.abort()  # its length was told, or its end was not: the peer sees that it is not whole
        finally:
            await stream.aclose()
            self.pours = False

    def pause(self, due_s: float) -> None:
        """The peer takes no more now; by then it must have taken some."""
        self.can_write.clear()
        self._unsent_bytes = self._connection.transport.get_write_buffer_size()
        self._connection.due_s = due_s

    def extend(self, unsent_bytes: int, due_s: float) -> bool:
        """More time for a peer that is slow, but reads; False where it has taken too little since it was paused."""
        if not unsent_bytes or unsent_bytes + _TAKEN_BYTES > self._unsent_bytes:
            return False
        self._unsent_bytes, self._connection.due_s = unsent_bytes, due_s
        return True
