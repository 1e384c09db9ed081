"""Which requests of a front a replica has launched, where the front finds it without being told."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

__all__ = ["LaunchBoard", "LaunchReading"]

_RING = 4096  # requests; those of the calls that run are always among them
_BYTES = 8 * (_RING + 2)  # how many there were, when the last call began, and their numbers


class LaunchBoard:
    """The replica's side. It is written before a call that may be its end, and outlives it."""

    def __init__(self, path: str) -> None:
        """Of a front that has made it; raises OSError where that front is gone."""
        file = os.open(path, os.O_RDWR)
        try:
            view = memoryview(mmap.mmap(file, _BYTES))
        finally:
            os.close(file)
        Path(path).unlink()  # both sides have it
        self._numbers, self._began_s = view.cast("q"), view.cast("d")
        self._lock = threading.Lock()  # each lane of a device launches in a thread of its own

    def write(self, requests: Sequence[int], now_s: float) -> None:
        """A call with rows of these requests begins."""
        with self._lock:
            numbers = self._numbers
            count = numbers[0]
            for at, request in enumerate(requests, count):
                numbers[2 + at % _RING] = request
            self._began_s[1] = now_s
            numbers[0] = count + len(requests)  # last: who reads it finds the rest


class LaunchReading:
    """The front's side, which makes it."""

    def __init__(self, path: str) -> None:
        """Raises OSError where the replica is gone."""
        self._path = path
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(file, _BYTES)
            self._mapped = mmap.mmap(file, _BYTES)
        finally:
            os.close(file)
        self._view = memoryview(self._mapped)
        self._numbers, self._began_s, self._seen = self._view.cast("q"), self._view.cast("d"), 0

    def launched(self) -> tuple[list[int], float]:
        """The requests since the last look, and when the last call began."""
        count = self._numbers[0]
        if count == self._seen:
            return [], 0.0
        first, self._seen = max(self._seen, count - _RING), count
        return [self._numbers[2 + at % _RING] for at in range(first, count)], self._began_s[1]

    def close(self) -> None:
        """Its file stays open no longer; where no replica has opened it, it goes."""
        for each in (self._numbers, self._began_s, self._view):
            each.release()
        self._mapped.close()
        with contextlib.suppress(OSError):
            Path(self._path).unlink()
