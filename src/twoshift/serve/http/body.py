"""A request's body as it comes in: unpacked, and bounded by itself and together with all others."""

from __future__ import annotations

import zlib
from typing import Any

from twoshift.serve.http.messages import HttpError

__all__ = ["SMALL_BYTES", "Body", "Room"]

SMALL_BYTES = 64 << 10  # of a body, that need no room: as many as there may be connections do no harm
_NO_ROOM_S = 1.0


class Room:
    """What large bodies may hold together, on however many connections."""

    __slots__ = ("_most_bytes", "held_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Raises HttpError where it is full."""
        if self.held_bytes + size > self._most_bytes:
            raise HttpError(503, "there is no room for so large a body now", retry_after_s=_NO_ROOM_S)
        self.held_bytes += size

    def give(self, size: int) -> None:
        """What was taken."""
        self.held_bytes -= size


class Body:
    """Pieces in, a bounded whole out, however small they are and however well they are packed."""

    __slots__ = ("_came_bytes", "_most_bytes", "_room", "_unpacker", "_whole", "held_bytes")

    def __init__(self, most_bytes: int, room: Room, encoding: bytes | None) -> None:
        """`encoding` is the header's; raises HttpError for one that is not known."""
        self._most_bytes, self._room = most_bytes, room
        self._unpacker = _unpacker(encoding)
        self._whole: bytes | bytearray = b""
        self._came_bytes = 0
        self.held_bytes = 0  # of the room

    def add(self, data: bytes) -> None:
        """Raises HttpError where it is too much, or not packed as it should be."""
        self._came_bytes += len(data)
        if self._unpacker is not None:
            data = self._unpacked(data)
        size = len(self._whole) + len(data)
        if max(size, self._came_bytes) > self._most_bytes:
            raise self._too_large()
        if size - SMALL_BYTES > self.held_bytes:
            self._room.take(size - SMALL_BYTES - self.held_bytes)
            self.held_bytes = size - SMALL_BYTES
        if not self._whole:
            self._whole = data
        else:  # one buffer, not a list of pieces: millions of tiny ones would cost many times their bytes
            self._whole = self._whole if isinstance(self._whole, bytearray) else bytearray(self._whole)
            self._whole += data

    def whole(self) -> bytes:
        """All of it; raises HttpError where its packing says that there is more."""
        if self._unpacker is not None and self._came_bytes and not self._unpacker.eof:
            raise HttpError(400, "a packed body that ends too early")
        return bytes(self._whole)

    def _unpacked(self, data: bytes) -> bytes:
        """Never more than a body may hold, however much it would unpack to."""
        try:
            unpacked = self._unpacker.decompress(data, self._most_bytes + 1 - len(self._whole))
        except zlib.error as error:
            raise HttpError(400, "a body that is not packed as its header says") from error
        if self._unpacker.unconsumed_tail:
            raise self._too_large()
        if self._unpacker.unused_data:  # which the unpacker would keep, all of it
            raise HttpError(400, "a packed body that goes on behind its end")
        return unpacked

    def _too_large(self) -> HttpError:
        return HttpError(413, f"a body of more than {self._most_bytes:,} bytes")


def _unpacker(encoding: bytes | None) -> Any:
    match (encoding or b"identity").strip().lower():
        case b"identity":
            return None
        case b"gzip" | b"x-gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        case b"deflate":
            return zlib.decompressobj()
        case other:
            raise HttpError(415, f"content-encoding {other.decode('latin-1')}: gzip, deflate or none is expected")
