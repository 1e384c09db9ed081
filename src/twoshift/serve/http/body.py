"""A request's body as it comes in, bounded by itself and together with all others; and how a packed one is unpacked."""

from __future__ import annotations

import zlib
from typing import Any

from twoshift.policy.host import SMALL_BYTES
from twoshift.serve.http.http_error import HttpError

__all__ = ["Body", "BodyRoom", "Packed", "SkippedBody", "check_encoding", "too_large"]

_NO_ROOM_S = 1.0
_READ_BYTES = 64 << 10  # of a packed body, that are unpacked together


class BodyRoom:
    """What large bodies may hold together. A client may hold as much as it leaves for the others.

    So one client gets up to a half, two a third each, and there is always room for one more.
    """

    __slots__ = ("_most_bytes", "_of_clients", "held_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._of_clients: dict[str, int] = {}  # those that hold some
        self.held_bytes = 0

    def take(self, client: str, size: int) -> None:
        """Raises HttpError where it is full, or this client's share of it is."""
        own_bytes = self._of_clients.get(client, 0) + size
        if own_bytes > self._most_bytes - self.held_bytes - size:
            raise HttpError(
                503, "the server has no memory for a request body of this size at the moment", retry_after_s=_NO_ROOM_S
            )
        self._of_clients[client] = own_bytes
        self.held_bytes += size

    def give(self, client: str, size: int) -> None:
        """What was taken."""
        if not size:
            return
        self.held_bytes -= size
        own_bytes = self._of_clients[client] - size
        if own_bytes:
            self._of_clients[client] = own_bytes
        else:
            del self._of_clients[client]


class Body:
    """Pieces in, a bounded whole out, however small they are; what is packed stays so."""

    __slots__ = ("_most_bytes", "_room", "_whole", "client", "held_bytes")

    def __init__(self, most_bytes: int, room: BodyRoom, client: str) -> None:
        self._most_bytes, self._room, self.client = most_bytes, room, client
        self._whole: bytes | bytearray = b""
        self.held_bytes = 0  # of the room

    def add(self, data: bytes) -> None:
        """Raises HttpError where it is too much."""
        size = len(self._whole) + len(data)
        if size > self._most_bytes:
            raise too_large(self._most_bytes)
        if size - SMALL_BYTES > self.held_bytes:
            self._room.take(self.client, size - SMALL_BYTES - self.held_bytes)
            self.held_bytes = size - SMALL_BYTES
        if not self._whole:
            self._whole = data
        else:  # one buffer, not a list of pieces: millions of tiny ones would cost many times their bytes
            self._whole = self._whole if isinstance(self._whole, bytearray) else bytearray(self._whole)
            self._whole += data

    def whole(self) -> bytes | bytearray:
        """All of it; a large one is not copied."""
        return _kept(self._whole)


class SkippedBody:
    """The body of a request that takes none: counted, never kept or unpacked."""

    __slots__ = ("_left_bytes",)
    client, held_bytes = "", 0  # it takes no room

    def __init__(self) -> None:
        self._left_bytes = SMALL_BYTES

    def add(self, data: bytes) -> None:
        """Raises HttpError where it is too much."""
        self._left_bytes -= len(data)
        self.check(0)

    def check(self, coming_bytes: int) -> None:
        """Whether so many may still come; raises HttpError."""
        if coming_bytes > self._left_bytes:
            raise HttpError(413, f"this endpoint reads no request body, but more than {SMALL_BYTES:,} bytes were sent")


class Packed:
    """A packed body that is unpacked piece by piece, never to more than a body may hold."""

    __slots__ = ("_at", "_packed", "_tail", "_unpacker", "_whole", "most_bytes")

    def __init__(self, packed: bytes | bytearray, encoding: bytes, most_bytes: int) -> None:
        self._packed, self._at, self._tail = packed, 0, b""
        self._unpacker, self.most_bytes = _unpacker(encoding), most_bytes
        self._whole = bytearray()

    @property
    def size(self) -> int:
        """Of what is unpacked so far."""
        return len(self._whole)

    def more(self, most_bytes: int) -> bool:
        """Unpacks about so many bytes; False where that was all. Raises HttpError."""
        until_bytes = self.size + most_bytes
        while self.size < until_bytes and not self._unpacker.eof:
            data = self._tail or bytes(self._packed[self._at : self._at + _READ_BYTES])
            if not self._tail:
                self._at += len(data)
            self._unpack(data, until_bytes - self.size)
            if self.size > self.most_bytes:
                raise too_large(self.most_bytes)
        if self._unpacker.eof and (self._unpacker.unused_data or self._at < len(self._packed)):
            raise HttpError(400, "the compressed body has extra bytes after its end")
        return not self._unpacker.eof

    def _unpack(self, data: bytes, most_bytes: int) -> None:
        try:
            piece = self._unpacker.decompress(data, most_bytes)
        except zlib.error as error:
            raise HttpError(400, "the body does not match its content-encoding") from error
        if not piece and not data and not self._unpacker.eof:
            raise HttpError(400, "the compressed body is truncated")
        self._tail = self._unpacker.unconsumed_tail
        self._whole += piece

    def whole(self) -> bytes | bytearray:
        """What was unpacked."""
        return _kept(self._whole)


def too_large(most_bytes: int) -> HttpError:
    """The error for a body of more than that."""
    return HttpError(413, f"the request body has more than {most_bytes:,} bytes")


def check_encoding(encoding: bytes | None) -> bytes | None:
    """How a body is packed; None where it is not. Raises HttpError."""
    match (encoding or b"identity").strip().lower():
        case b"identity":
            return None
        case b"gzip" | b"x-gzip":
            return b"gzip"
        case b"deflate":
            return b"deflate"
        case other:
            raise HttpError(415, f"content-encoding {other.decode('latin-1')}: expected gzip, deflate or none")


def _kept(whole: bytes | bytearray) -> bytes | bytearray:
    return bytes(whole) if len(whole) <= SMALL_BYTES else whole


def _unpacker(encoding: bytes) -> Any:
    return zlib.decompressobj(16 + zlib.MAX_WBITS if encoding == b"gzip" else zlib.MAX_WBITS)
