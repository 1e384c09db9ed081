"""An object as a file: ranges where it is read here and there, ahead of the reader where it is read through."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import BinaryIO, cast

__all__ = ["opened"]

_BUFFER_BYTES = 1 << 20  # the least that is asked for at once
_MOST_AHEAD_BYTES = 8 << 20

Fetch = Callable[[int, int], memoryview]  # the bytes [start, stop)


def opened(fetch: Fetch, size_bytes: int, threads: Executor) -> BinaryIO:
    """The file; `threads` read ahead."""
    return cast("BinaryIO", io.BufferedReader(_RangeReader(fetch, size_bytes, threads), _BUFFER_BYTES))


class _RangeReader(io.RawIOBase):
    """Reads ranges; once two follow each other, the next is on its way, each twice as long as the last."""

    def __init__(self, fetch: Fetch, size_bytes: int, threads: Executor) -> None:
        super().__init__()
        self._fetch, self._size, self._threads = fetch, size_bytes, threads
        self._at = 0
        self._held, self._held_from = memoryview(b""), 0  # what was read last; it ends where a next range begins
        self._ahead: Future[memoryview] | None = None  # the range right behind `_held`
        self._ahead_bytes = _BUFFER_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there; nothing is asked for until it is read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"seek to {start + offset}: the position is before the start of the file")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """At least one byte unless at the end."""
        if self._at >= self._size or not len(buffer):
            return 0
        if not self._held_from <= self._at < self._held_stop:
            self._turn_to(self._at, len(buffer))
        taken = self._held[self._at - self._held_from :][: len(buffer)]
        buffer[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def close(self) -> None:
        """Forget what is on its way."""
        self._drop_ahead()
        self._held = memoryview(b"")
        super().close()

    @property
    def _held_stop(self) -> int:
        return self._held_from + len(self._held)

    def _turn_to(self, at: int, wanted: int) -> None:
        follows = at == self._held_stop and len(self._held) > 0
        ahead = self._ahead if follows else None
        if ahead is None:
            self._drop_ahead()
            self._held = self._fetch(at, min(self._size, at + max(wanted, _BUFFER_BYTES)))
        else:
            self._ahead = None
            self._held = ahead.result()
        self._held_from = at
        self._ahead_bytes = min(_MOST_AHEAD_BYTES, 2 * self._ahead_bytes) if follows else _BUFFER_BYTES
        if follows and self._held_stop < self._size:
            stop = min(self._size, self._held_stop + self._ahead_bytes)
            self._ahead = self._threads.submit(self._fetch, self._held_stop, stop)

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
