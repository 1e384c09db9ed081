"""What a replica has to do, where every front of its machine can read it without asking."""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path

__all__ = ["LoadBoard", "LoadReading"]

_BYTES = 8  # one aligned number: it is read whole or not at all


class LoadBoard:
    """The replica's side: when one more row would be answered, on the machine's monotonic clock; -inf: nobody waits."""

    def __init__(self, path: str | Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(file, _BYTES)
            self._number = memoryview(mmap.mmap(file, _BYTES)).cast("d")
        finally:
            os.close(file)
        self.write(-math.inf)

    def write(self, answered_s: float) -> None:
        """As of now."""
        self._number[0] = answered_s


class LoadReading:
    """A front's side."""

    def __init__(self, path: str | Path) -> None:
        """Raises OSError where the replica is gone."""
        file = os.open(path, os.O_RDONLY)
        try:
            self._number = memoryview(mmap.mmap(file, _BYTES, prot=mmap.PROT_READ)).cast("d")
        finally:
            os.close(file)

    def read(self) -> float:
        """As the replica has written it last."""
        return self._number[0]
