"""A table that is open: a key to its row, by two reads of files that stay on the disk.

It reads and does not map: a file that somebody cuts short while it is served gives a short read here, where a mapping
would end the process. What is not in the page cache can be told without waiting for the disk.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np

from twoshift.answers.keys import digest_of
from twoshift.answers.records import Record, unpack_record
from twoshift.answers.writing import LENGTH_BITS, ROWS, SLOTS, STARTS
from twoshift.errors import Broken

__all__ = ["AnswerTable", "NotCached"]

_SLOT_BYTES, _HASH_BYTES = 16, 8
_LENGTH = (1 << LENGTH_BITS) - 1
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class NotCached(Exception):
    """The disk has to be asked: whoever must not wait asks again in a thread."""


class _File(NamedTuple):
    number: int
    path: Path


class AnswerTable:
    """Any thread may ask; its files are closed once nobody holds it."""

    def __init__(self, folder: Path) -> None:
        self._slots, self._rows = (_File(os.open(folder / name, os.O_RDONLY), folder / name) for name in (SLOTS, ROWS))
        weakref.finalize(self, _close, (self._slots.number, self._rows.number))
        starts = np.fromfile(folder / STARTS, "<u8")
        if not len(starts) or (len(starts) - 1) & (len(starts) - 2):
            raise Broken(f"{folder / STARTS} is damaged")
        self._starts = memoryview(starts.astype(np.uint64).tobytes()).cast("Q")
        self._shift = 64 - (len(starts) - 1).bit_length() + 1
        self._can_tell = bool(_NOWAIT)

    @property
    def memory_bytes(self) -> int:
        """That it holds, whatever its size: at most 8 MiB."""
        return self._starts.nbytes

    def find(self, key: bytes, may_wait: bool = True) -> Record | None:
        """A key's row; None where there is none. Raises Broken where it is damaged, NotCached where it would wait."""
        digest = digest_of(key)
        bucket = int.from_bytes(digest, "big") >> self._shift
        first, last = self._starts[bucket], self._starts[bucket + 1]
        slots = self._read(self._slots, first * _SLOT_BYTES, (last - first) * _SLOT_BYTES, may_wait)
        at = slots.find(digest)
        while at >= 0:
            if at % _SLOT_BYTES == 0:
                place = int.from_bytes(slots[at + _HASH_BYTES : at + _SLOT_BYTES], "big")
                record = unpack_record(self._read(self._rows, place >> LENGTH_BITS, place & _LENGTH, may_wait))
                if record.key == key:
                    return record
            at = slots.find(digest, at + 1)
        return None

    def _read(self, file: _File, at: int, size: int, may_wait: bool) -> bytes:
        if not size:
            return b""
        try:
            found = self._at_once(file, at, size) if self._can_tell and not may_wait else None
            if found is None:
                found = os.pread(file.number, size, at)
        except OSError as error:
            raise Broken(f"{file.path} cannot be read: {error.strerror}") from error
        if len(found) != size:
            raise Broken(f"{file.path} is cut short: {at + size:,} bytes expected")
        return found

    def _at_once(self, file: _File, at: int, size: int) -> bytes | None:
        """What is in the page cache; None where the file system cannot tell, or where the file ends before."""
        buffer = bytearray(size)
        try:
            read = os.preadv(file.number, [buffer], at, _NOWAIT)
        except BlockingIOError as error:
            raise NotCached from error
        except OSError:  # a file system that does not know of it
            self._can_tell = False
            return None
        if 0 < read < size:
            raise NotCached
        return bytes(buffer) if read == size else None


def _close(numbers: tuple[int, ...]) -> None:
    for each in numbers:
        os.close(each)
