"""One row of a table: a checksum, when it was made, its key, its values."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from twoshift.errors import Broken

__all__ = ["Record", "pack_record", "unpack_record"]

_checksum, _rest = struct.Struct("<I"), struct.Struct("<dI")
_HEAD_BYTES = _checksum.size + _rest.size


class Record(NamedTuple):
    """A row as it was read; its values begin at `at`."""

    key: bytes
    made_unix_s: float
    data: bytes
    at: int


def pack_record(key: bytes, made_unix_s: float, values: bytes) -> bytes:
    """The bytes of a row."""
    body = _rest.pack(made_unix_s, len(key)) + key + values
    return _checksum.pack(zlib.crc32(body)) + body


def unpack_record(data: bytes) -> Record:
    """Raises Broken where a bit of it is another than was written."""
    if len(data) < _HEAD_BYTES:
        raise Broken(f"a precomputed row is truncated ({len(data)} bytes), so the answers must be built again")
    if _checksum.unpack_from(data)[0] != zlib.crc32(memoryview(data)[_checksum.size :]):
        raise Broken("a precomputed row is damaged (its checksum is wrong), so the answers must be built again")
    made_unix_s, size = _rest.unpack_from(data, _checksum.size)
    return Record(data[_HEAD_BYTES : _HEAD_BYTES + size], made_unix_s, data, _HEAD_BYTES + size)
