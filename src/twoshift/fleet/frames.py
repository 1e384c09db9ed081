"""Messages between processes: msgpack in frames, arrays as their bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import TooLarge

__all__ = ["LIVE_BYTES", "Frames", "attach", "decoder", "framed", "is_plain"]

LIVE_BYTES = 1 << 20  # that a socket holds: a call's results, without waiting for who reads
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1 << 30
_ARRAY, _OBJECTS = 1, 2  # msgpack's extension types


def framed(message: msgspec.Struct) -> bytes:
    """As it goes over the socket; raises TypeError, OverflowError or UnicodeEncodeError for what cannot, TooLarge."""
    buffer = bytearray(_LENGTH.size)
    _encoder.encode_into(message, buffer, _LENGTH.size)
    size = len(buffer) - _LENGTH.size
    if size > _MOST_BYTES:
        raise TooLarge("request", f"{size:,} bytes", f"at most {_MOST_BYTES:,} bytes per message to or from a replica")
    _LENGTH.pack_into(buffer, 0, size)
    return bytes(buffer)


def decoder(kinds: Any) -> Callable[[bytes], Any]:
    """Of messages of these kinds."""
    return msgspec.msgpack.Decoder(kinds, ext_hook=_array).decode


def is_plain(value: Any) -> bool:
    """Whether it can be sent."""
    try:
        _encoder.encode(value)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError):
        return False
    return True


async def attach(protocol: asyncio.Protocol, live: socket.socket) -> None:
    """Let the running loop read from the socket of a replica: of this machine, or of another one."""
    live.setblocking(False)
    loop = asyncio.get_running_loop()
    is_local = live.family == socket.AF_UNIX
    await (loop.create_unix_connection if is_local else loop.create_connection)(lambda: protocol, sock=live)


class Frames:
    """Bytes as they come in, to whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole now."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer, at)
            if size > _MOST_BYTES:
                raise ValueError(f"a message of {size:,} bytes")
            end = at + _LENGTH.size + size
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[at + _LENGTH.size : end])
            at = end
        del self._buffer[:at]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            head = _encoder.encode((list(value.shape), value.ravel().tolist()))
            return msgspec.msgpack.Ext(_OBJECTS, head)
        return msgspec.msgpack.Ext(_ARRAY, _encoder.encode((value.dtype.str, list(value.shape), value.tobytes())))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent to another process")


def _array(code: int, data: memoryview) -> NDArray[Any]:
    if code == _ARRAY:
        dtype, shape, values = _arrays.decode(data)
        return np.frombuffer(values, dtype).reshape(shape)
    shape, listed = _objects.decode(data)
    found = np.empty(len(listed), object)
    for at, value in enumerate(listed):  # all at once, lists in it would be taken for axes
        found[at] = value
    return found.reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_arrays = msgspec.msgpack.Decoder(tuple[str, list[int], memoryview])
_objects = msgspec.msgpack.Decoder(tuple[list[int], list[Any]], ext_hook=_array)
