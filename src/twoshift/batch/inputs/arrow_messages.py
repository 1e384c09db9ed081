"""The messages of an Arrow IPC file or stream: how many rows each record batch has, without reading any.

pyarrow tells a batch's rows only by reading its columns; the headers alone are a few bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from twoshift.batch.inputs.source import Source

__all__ = ["MAGIC", "is_feather_v1", "record_batches"]

MAGIC = b"ARROW1\0\0"
_CONTINUES = 0xFFFFFFFF
_MOST_HEADER_BYTES = 256 << 20
_RECORD_BATCH = 3  # of the union MessageHeader in Message.fbs


def is_feather_v1(head: bytes) -> bool:
    """Whether a file that begins so is of Feather's first version."""
    return head.startswith(b"FEA1")


def record_batches(source: Source, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Rows and bytes of each record batch, in order; raises EOFError where one is cut short."""
    source.seek(0)
    at = len(MAGIC) if source.read(len(MAGIC)) == MAGIC else 0
    while True:
        source.seek(at)
        head = source.read(8)
        if not head:
            return  # a stream may just end
        length, skip = _header_length(head)
        if not length:
            return
        header = head[skip:] + source.read(max(0, length - (8 - skip)))
        if len(header) < length or length > _MOST_HEADER_BYTES:
            raise EOFError("the header of an Arrow message is truncated")
        rows, body_bytes = _message(header)
        at += skip + length + body_bytes
        if at > size_bytes:
            raise EOFError("an Arrow record batch is truncated")
        if rows is not None:
            yield rows, body_bytes


def _header_length(head: bytes) -> tuple[int, int]:
    """A header's length, and how many bytes say so: 8, and 4 in files from before 2019."""
    if len(head) < 4:
        raise EOFError("an Arrow message is truncated")
    (first,) = struct.unpack_from("<I", head)
    if first != _CONTINUES:
        return first, 4
    if len(head) < 8:
        raise EOFError("an Arrow message is truncated")
    return struct.unpack_from("<I", head, 4)[0], 8


def _message(header: bytes) -> tuple[int | None, int]:
    """Rows of a record batch (None for another message), and the bytes behind the header."""
    try:
        (root,) = struct.unpack_from("<I", header)
        kind, table, body = (_field(header, root, slot) for slot in (1, 2, 3))
        body_bytes = struct.unpack_from("<q", header, body)[0] if body else 0
        if not kind or not table or header[kind] != _RECORD_BATCH:
            return None, body_bytes
        length = _field(header, table + struct.unpack_from("<I", header, table)[0], 0)
        return (struct.unpack_from("<q", header, length)[0] if length else 0), body_bytes
    except (struct.error, IndexError) as error:
        raise EOFError("the header of an Arrow message is invalid") from error


def _field(buffer: bytes, table: int, slot: int) -> int:
    """Where a flatbuffer's table has that field; 0 where it has not."""
    entries = table - struct.unpack_from("<i", buffer, table)[0]
    (size,) = struct.unpack_from("<H", buffer, entries)
    place = 4 + 2 * slot
    offset = struct.unpack_from("<H", buffer, entries + place)[0] if place < size else 0
    return table + offset if offset else 0
