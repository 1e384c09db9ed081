"""A table that is open: a key to its row, by two reads of files that stay on the disk.

It reads and does not map: a file that somebody cuts short while it is served gives a short read here, where a mapping
would end the process. What is not in the page cache can be told without waiting for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from twoshift.answers.keys import digest_of
from twoshift.answers.reading import ReadFile
from twoshift.answers.records import Record, unpack_record
from twoshift.answers.writing import LENGTH_BITS, ROWS, SLOTS, STARTS
from twoshift.errors import Broken

__all__ = ["AnswerTable"]

_SLOT_BYTES, _HASH_BYTES = 16, 8
_LENGTH = (1 << LENGTH_BITS) - 1


class AnswerTable:
    """Any thread may ask; its files are closed once nobody holds it."""

    def __init__(self, folder: Path) -> None:
        self._slots, self._rows = ReadFile(folder / SLOTS), ReadFile(folder / ROWS)
        self._folder, starts = folder, np.fromfile(folder / STARTS, "<u8")
        if not len(starts) or (len(starts) - 1) & (len(starts) - 2):
            raise Broken(f"{folder / STARTS} is damaged")
        self._starts = memoryview(starts.astype(np.uint64).tobytes()).cast("Q")
        self._shift = 64 - (len(starts) - 1).bit_length() + 1

    @property
    def memory_bytes(self) -> int:
        """That it holds, whatever its size: at most 8 MiB."""
        return self._starts.nbytes

    @property
    def is_changed(self) -> bool:
        """Whether its files are others by now than those that are open."""
        return self._slots.is_changed or self._rows.is_changed

    def check(self, checksums: Mapping[str, int]) -> None:
        """Raises Broken where what finds the rows is damaged: keys would seem to be missing. Rows have their own."""
        for name, expected in checksums.items():
            if ReadFile(self._folder / name).checksum() != expected:
                raise Broken(
                    f"{self._folder / name} is damaged (its checksum is wrong): restore the table of answers from a "
                    "backup, or build it again"
                )

    def preload(self) -> None:
        """Have the files in the page cache, so that hits need not wait for the disk; the slots first."""
        for file in (self._slots, self._rows):
            file.preload()

    def find(self, key: bytes, may_wait: bool = True) -> Record | None:
        """A key's row; None where there is none. Raises Broken where it is damaged, NotCached where it would wait."""
        digest = digest_of(key)
        bucket = int.from_bytes(digest, "big") >> self._shift
        first, last = self._starts[bucket], self._starts[bucket + 1]
        slots = self._slots.read(first * _SLOT_BYTES, (last - first) * _SLOT_BYTES, may_wait)
        at = slots.find(digest)
        while at >= 0:
            if at % _SLOT_BYTES == 0:
                place = int.from_bytes(slots[at + _HASH_BYTES : at + _SLOT_BYTES], "big")
                record = unpack_record(self._rows.read(place >> LENGTH_BITS, place & _LENGTH, may_wait))
                if record.key == key:
                    return record
            at = slots.find(digest, at + 1)
        return None
