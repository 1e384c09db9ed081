"""What passes between a front and a replica for live requests: msgpack in frames, arrays as their bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.engine.stats import EngineStats, Queue
from twoshift.error_codec import EncodedError
from twoshift.errors import Malformed, TooLarge
from twoshift.serve.live_request import LiveRequest
from twoshift.types import Lane

__all__ = [
    "Ask",
    "Done",
    "Forget",
    "Frames",
    "FromReplica",
    "Heartbeat",
    "Hello",
    "Refused",
    "Results",
    "Started",
    "ToReplica",
    "asking",
    "framed",
    "from_replica",
    "is_plain",
    "to_replica",
]  # fmt: skip

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1 << 30
_ARRAY, _OBJECTS = 1, 2  # msgpack's extension types


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Hello(_Message, frozen=True):
    """The front listens from now on."""


class Ask(_Message, frozen=True):
    """Answer these rows; a pair of texts is a tuple where rows are made, which msgpack does not know."""

    id: int
    rows: list[Any]
    pairs: bool
    deadline_s: float  # on the machine's monotonic clock, as is the next
    arrived_s: float
    tenant: str = ""  # who pays
    reserve_s: float = 0.0  # of its time, that the front needs for its reply


class Forget(_Message, frozen=True):
    """Nobody waits for it any more."""

    id: int


ToReplica = Hello | Ask | Forget


class Started(_Message, frozen=True):
    """Rows of these requests are about to be launched: after that they may have had an effect."""

    ids: list[int]


class Results(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a request that were answered by one call."""

    columns: dict[str, Any]
    rows: int
    forward_s: float
    call_rows: int


class Done(_Message, frozen=True):
    """A request's answer."""

    id: int
    results: list[Results]
    tokens: int
    truncated: int
    stages: tuple[float, float, float, float, float, float, int]


class Refused(_Message, frozen=True):
    """A request that has no answer, and why."""

    id: int
    error: EncodedError


class Heartbeat(_Message, frozen=True):
    """The replica's loop turns; how it is."""

    stats: EngineStats
    waiting: dict[Lane, Queue]
    running_s: float  # of the call on the device; 0 where there is none
    reason: str  # why it is not well; empty where it is
    cost: dict[str, Any] | None  # the curve, where it has changed
    derived: dict[str, Any] | None  # what follows from it
    host_s: float = 0.0  # that a request costs its interpreter
    reserve_s: float = 0.0  # of a request's time, that it keeps for the reply


FromReplica = Started | Done | Refused | Heartbeat


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
to_replica = msgspec.msgpack.Decoder(ToReplica, ext_hook=_array).decode
from_replica = msgspec.msgpack.Decoder(FromReplica, ext_hook=_array).decode


def framed(message: ToReplica | FromReplica) -> bytes:
    """As it goes over the socket; raises TypeError, OverflowError or UnicodeEncodeError for what cannot, TooLarge."""
    buffer = bytearray(_LENGTH.size)
    _encoder.encode_into(message, buffer, _LENGTH.size)
    size = len(buffer) - _LENGTH.size
    if size > _MOST_BYTES:
        raise TooLarge("request", f"{size:,} bytes", f"at most {_MOST_BYTES:,} to or from a replica")
    _LENGTH.pack_into(buffer, 0, size)
    return bytes(buffer)


def asking(number: int, request: LiveRequest) -> bytes:
    """A request as it goes to a replica; raises Malformed for rows that cannot, TooLarge."""
    rows, deadline_s, arrived_s = request.rows, request.deadline_s, request.arrived_s
    pairs = isinstance(rows[0], tuple) if rows else False
    try:
        return framed(Ask(number, list(rows), pairs, deadline_s, arrived_s, request.tenant, request.reserve_s))
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise Malformed("input", f"numbers, texts and lists of them: {error}") from error


def is_plain(value: Any) -> bool:
    """Whether it can be sent."""
    try:
        _encoder.encode(value)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError):
        return False
    return True


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
