"""A file that is read where it lies: at once from the page cache, or after a wait for the disk."""

from __future__ import annotations

import os
import weakref
import zlib
from pathlib import Path

from twoshift.errors import Broken

__all__ = ["NotCached", "ReadFile"]

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_PIECE_BYTES = 8 << 20


class NotCached(Exception):
    """The disk has to be asked: whoever must not wait asks again in a thread."""


class ReadFile:
    """Open for reading, by any thread; closed once nobody holds it. Raises OSError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.number)
        self._can_tell = bool(_NOWAIT)
        self._state = _state(os.fstat(self.number))

    def read(self, at: int, size: int, may_wait: bool) -> bytes:
        """So many bytes; raises Broken where they are not there, NotCached where it would wait."""
        if not size:
            return b""
        try:
            found = self._at_once(at, size) if self._can_tell and not may_wait else None
            if found is None:
                found = os.pread(self.number, size, at)
        except OSError as error:
            raise Broken(f"{self.path} cannot be read: {error.strerror}") from error
        if len(found) != size:
            raise Broken(
                f"{self.path} is truncated (expected at least {at + size:,} bytes), so the table of answers must be "
                "built again"
            )
        return found

    @property
    def is_changed(self) -> bool:
        """Whether its path has another file by now, or the same one with other bytes."""
        try:
            return _state(self.path.stat()) != self._state
        except FileNotFoundError:
            return False

    def checksum(self) -> int:
        """Of all its bytes."""
        found, at = 0, 0
        while data := os.pread(self.number, _PIECE_BYTES, at):
            found, at = zlib.crc32(data, found), at + len(data)
        return found

    def preload(self) -> None:
        """Ask the system to have it in its page cache, as far as there is memory that nobody uses."""
        if not hasattr(os, "posix_fadvise"):
            return
        for at in range(0, os.fstat(self.number).st_size, _PIECE_BYTES):
            os.posix_fadvise(self.number, at, _PIECE_BYTES, os.POSIX_FADV_WILLNEED)

    def _at_once(self, at: int, size: int) -> bytes | None:
        """What is in the page cache; None where the file system cannot tell, or where the file ends before."""
        buffer = bytearray(size)
        try:
            read = os.preadv(self.number, [buffer], at, _NOWAIT)
        except BlockingIOError as error:
            raise NotCached from error
        except OSError:  # a file system that does not know of it
            self._can_tell = False
            return None
        if 0 < read < size:
            raise NotCached
        return bytes(buffer) if read == size else None


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
