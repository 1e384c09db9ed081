"""What is counted for the limits of a key or a tenant, as bytes that several processes may see."""

from __future__ import annotations

import math
import struct

__all__ = ["NOT_SPENT", "LimitRecord"]

NOT_SPENT = -1
_FULL = (math.inf, 0.0)  # of a bucket nobody has taken from: how many are left, and since when
_FIXED = struct.Struct("=ddq")  # the bucket's state and the day that is spent; one count for each process follows
_BUCKET_BYTES, _COUNT_BYTES = 16, 8


class LimitRecord:
    """In memory of this process alone; or at a place in a file, as `SharedLimits` gives it."""

    __slots__ = ("bucket", "offset", "process", "running", "spent_on")

    def __init__(self, memory: memoryview | None = None, process: int = 0, offset: int = 0) -> None:
        memory = memoryview(bytearray(self.untouched(1))) if memory is None else memory
        self.bucket = memory[:_BUCKET_BYTES].cast("d")  # how many are left, and when that was so
        self.spent_on = memory[_BUCKET_BYTES : _FIXED.size].cast("q")  # the day whose device seconds are gone
        self.running = memory[_FIXED.size :].cast("q")  # requests, by process
        self.process, self.offset = process, offset  # whose count of them is ours, and where the file has it

    @staticmethod
    def untouched(processes: int) -> bytes:
        """Of a key or tenant that has asked for nothing."""
        return _FIXED.pack(*_FULL, NOT_SPENT) + bytes(_COUNT_BYTES * processes)

    def release(self) -> None:
        """So that the memory can be given back."""
        for each in (self.bucket, self.spent_on, self.running):
            each.release()
