"""Memory that a worker and one preparing process of its machine share: arrays lie in it, messages say where."""

from __future__ import annotations

import bisect
import mmap
import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.batch.preparing.line import PutBlock
from twoshift.ports import Columns

__all__ = ["ARENA_BYTES", "Arena", "ArenaBlocks", "ArenaSpace", "Arrays", "Placed", "arena_file", "placed_bytes"]

ARENA_BYTES = 64 << 20  # twenty windows of short texts with their answers; only what is used takes memory
_ALIGNED_BYTES = 64
_SLACK_BYTES = 1024  # of a result's room: each column begins at a round place


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an array lies."""

    start: int
    dtype: str
    shape: tuple[int, ...]


Arrays = Mapping[str, Placed | NDArray[Any]]  # in the arena; or by themselves, where they have no room in it


def arena_file() -> int:
    """A new arena's file, without a name: nothing of it is left once nobody has it open."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("twoshift-arena", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, ARENA_BYTES)
    return file


def placed_bytes(columns: Columns) -> int | None:
    """What the arrays take in an arena; None where they are Python objects, which have no place in it."""
    if any(values.dtype.hasobject for values in columns.values()):
        return None
    return sum(_aligned(values.nbytes) for values in columns.values())


class Arena:
    """The memory itself, in either process."""

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, ARENA_BYTES)

    def put(self, columns: Columns, start: int) -> dict[str, Placed]:
        """Copy arrays to there, one after the other."""
        placed = dict[str, Placed]()
        for name, values in columns.items():
            placed[name] = Placed(start, values.dtype.str, values.shape)
            self._view(placed[name])[...] = values
            start += _aligned(values.nbytes)
        return placed

    def copies(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """The arrays, out of the arena: a place is used again while the device still reads the rows."""
        return {
            name: self._view(values).copy() if isinstance(values, Placed) else values for name, values in arrays.items()
        }

    def close(self) -> None:
        """Let it go."""
        self._memory.close()

    def _view(self, placed: Placed) -> NDArray[Any]:
        return np.ndarray(placed.shape, placed.dtype, self._memory, placed.start)


class ArenaSpace:
    """Which of an arena is free; kept by the preparing process alone. First fit: small jobs touch few pages."""

    def __init__(self, size_bytes: int = ARENA_BYTES) -> None:
        self._size_bytes = size_bytes
        self._free = [(0, size_bytes)]  # start and size, by start; neighbours are one
        self._changed = threading.Condition()  # guards the one above

    def take(self, size_bytes: int) -> int | None:
        """Where so many bytes are from now on, once that many are free; None where it is too small for them."""
        if size_bytes > self._size_bytes:
            return None
        with self._changed:
            while (found := next((each for each in self._free if each[1] >= size_bytes), None)) is None:
                self._changed.wait()
            start, free = found
            at = self._free.index(found)
            self._free[at : at + 1] = [(start + size_bytes, free - size_bytes)] if free > size_bytes else []
            return start

    def give_back(self, start: int, size_bytes: int) -> None:
        """Those bytes are free again."""
        with self._changed:
            at = bisect.bisect(self._free, (start, 0))
            if at < len(self._free) and self._free[at][0] == start + size_bytes:
                size_bytes += self._free.pop(at)[1]
            if at and sum(self._free[at - 1]) == start:
                start, before = self._free.pop(at - 1)
                at, size_bytes = at - 1, size_bytes + before
            self._free.insert(at, (start, size_bytes))
            self._changed.notify_all()


class ArenaBlocks:
    """A BlockMemory: what has no room in the arena at all is sent through the line."""

    def __init__(self, arena: Arena) -> None:
        self._arena, self._space = arena, ArenaSpace()

    def put(self, columns: Columns, result_bytes: int) -> PutBlock:
        """Rows, and room for results of that size once it is known."""
        rows_bytes = placed_bytes(columns)
        room_bytes = result_bytes + _SLACK_BYTES if result_bytes else 0
        start = None if rows_bytes is None else self._space.take(rows_bytes + room_bytes)
        if start is None or rows_bytes is None:
            return PutBlock(columns, None, None)
        room = (start + rows_bytes, room_bytes) if room_bytes else None
        return PutBlock(self._arena.put(columns, start), room, (start, rows_bytes + room_bytes))

    def results(self, columns: Arrays) -> dict[str, NDArray[Any]]:
        """Copies of them: their place is used again."""
        return self._arena.copies(columns)

    def give_back(self, block: PutBlock) -> None:
        """Its place is free."""
        if block.held is not None:
            self._space.give_back(*block.held)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
