"""A log of answers that were computed live, on this machine's disk: every process appends to it and follows it.

A frame is a mark, a length, and a row with its checksum. A process may be killed and a disk may be full in the middle
of one: readers pass over what is no whole frame, to the next mark. What is lost is computed again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from twoshift.answers.kept_rows import KeptKey, KeptRow, unpack_kept
from twoshift.answers.reading import ReadFile
from twoshift.errors import Broken

__all__ = ["WrittenLog", "frame_of"]

_MARK = b"\xa7TSW"
_head = struct.Struct("<4sI")
_MOST_ROW_BYTES = 1 << 20
_CHUNK_BYTES = 4 << 20  # read at a time: more than a row
_LENGTH_BITS = 25  # of a place; the rest is where the row begins
_LENGTH = (1 << _LENGTH_BITS) - 1
_ROWS_A_TURN, _REST_S = 200, 0.001  # of a compaction: the loop that serves has its turn between
_MOST_LOGS = 4  # of a folder: versions that were served of late

Keeps = Callable[[KeptRow], bool]


class _View(NamedTuple):
    """A file and its rows."""

    file: ReadFile
    places: dict[int, int]  # what a row is found by -> where it begins, and its length


def frame_of(row: bytes) -> bytes | None:
    """As it is appended; None where it is too large for a log."""
    return None if len(row) > _MOST_ROW_BYTES else _head.pack(_MARK, len(row)) + row


class WrittenLog:
    """Of one version. `find` is for any thread, everything else for one."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Raises OSError where there can be none."""
        self.path, self._limit_bytes = path, limit_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._append, self._read_bytes = -1, 0  # of the file, how many bytes are known
        try:
            self._open()
        except OSError:
            os.close(self._lock)
            raise
        _forget_older(path)

    @property
    def is_empty(self) -> bool:
        """Whether no row can be found."""
        return not self._view.places

    @property
    def is_full(self) -> bool:
        """Whether it has reached its limit."""
        return self._read_bytes > self._limit_bytes

    def find(self, key: KeptKey, may_wait: bool = True) -> KeptRow | None:
        """Raises Broken where it is damaged, NotCached where it would wait."""
        file, places = self._view  # held to the end: it may be compacted meanwhile
        place = places.get(key.place)
        if place is None:
            return None
        row = unpack_kept(file.read(place >> _LENGTH_BITS, place & _LENGTH, may_wait))
        return row if row.key == key else None

    def append(self, frames: Sequence[bytes]) -> None:
        """Whole frames, one after the other; raises OSError, and then some may be there."""
        with self._locked(fcntl.LOCK_SH):
            self._reopen_replaced()
            data = b"".join(frames)
            if os.write(self._append, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def follow(self) -> None:
        """What this and other processes have appended; raises OSError."""
        self._reopen_replaced()
        self._read_on()

    def _read_on(self) -> None:
        number = self._view.file.number
        while data := os.pread(number, _CHUNK_BYTES, self._read_bytes):
            taken = self._take(data)
            self._read_bytes += taken
            if not taken or len(data) < _CHUNK_BYTES:
                return

    def compact(self, keeps: Keeps) -> bool:
        """Leave out what is replaced and what `keeps` does not want, then the oldest, down to half of the limit.

        False where another process has just done it. Raises OSError; then everything is as it was.
        """
        with self._locked(fcntl.LOCK_EX):
            if self._reopen_replaced():
                return False
            self._read_on()
            beside = self.path.with_suffix(f".{os.getpid()}.tmp")
            try:
                with beside.open("wb", _CHUNK_BYTES) as target:
                    for frame in self._wanted(keeps):
                        target.write(frame)
                beside.replace(self.path)
            finally:
                with contextlib.suppress(OSError):
                    beside.unlink(missing_ok=True)
            self._open()
        return True

    def close(self) -> None:
        """No more."""
        for number in (self._append, self._lock):
            os.close(number)
        self._append = self._lock = -1

    def _wanted(self, keeps: Keeps) -> Iterator[bytes]:
        """Frames that stay, in their order; the newest ones where there are too many."""
        newest_first, kept = sorted(self._view.places.values(), reverse=True), list[int]()
        left_bytes = self._limit_bytes // 2
        for number, place in enumerate(newest_first):
            if number % _ROWS_A_TURN == _ROWS_A_TURN - 1:
                time.sleep(_REST_S)
            left_bytes -= (place & _LENGTH) + _head.size
            if left_bytes < 0:
                break
            with contextlib.suppress(Broken):
                if keeps(unpack_kept(self._row(place))):
                    kept.append(place)
        for place in reversed(kept):
            yield frame_of(self._row(place)) or b""

    def _row(self, place: int) -> bytes:
        return self._view.file.read(place >> _LENGTH_BITS, place & _LENGTH, may_wait=True)

    def _take(self, data: bytes) -> int:
        """The rows of these bytes, which may begin or end amid one; how many bytes are done with."""
        at = 0
        while (found := data.find(_MARK, at)) >= 0:
            begins = found + _head.size
            size = _head.unpack_from(data, found)[1] if begins <= len(data) else 0
            is_whole = begins + size <= len(data)
            if not is_whole and size <= _MOST_ROW_BYTES and data.find(_MARK, begins) < 0:
                return found  # it goes on in the next piece, or is being written
            at = found + 1
            if is_whole:
                with contextlib.suppress(Broken):
                    row = unpack_kept(data[begins : begins + size])
                    self._view.places[row.key.place] = self._read_bytes + begins << _LENGTH_BITS | size
                    at = begins + size
        return max(at, len(data) - len(_MARK) + 1)  # a mark may begin at the very end

    def _reopen_replaced(self) -> bool:
        """Whether another process has replaced it, or somebody has deleted or cut it: then it is opened anew."""
        with contextlib.suppress(FileNotFoundError):
            there = self.path.stat()
            is_same = there.st_ino == os.fstat(self._view.file.number).st_ino
            if is_same and there.st_size >= self._read_bytes:
                return False
        self._open()
        return True

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        before, self._append = self._append, number
        if before >= 0:
            os.close(before)
        self._view, self._read_bytes = _View(ReadFile(self.path), {}), 0
        self._read_on()

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        fcntl.flock(self._lock, how)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def _forget_older(path: Path) -> None:
    """Logs of versions that have not been served for the longest time."""
    others = [each for each in path.parent.glob("*.log") if each != path]
    with contextlib.suppress(OSError):
        for each in sorted(others, key=lambda log: log.stat().st_mtime)[: -(_MOST_LOGS - 1)]:
            each.unlink(missing_ok=True)
            each.with_suffix(".lock").unlink(missing_ok=True)
