"""Which parts of a stream to merge: neighbours of about the same size, so that rows are rarely written again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SmallPart", "parts_to_merge"]


@dataclass(frozen=True, slots=True)
class SmallPart:
    """A part, with its number of windows and its size."""

    windows: int
    size_bytes: int


def parts_to_merge(parts: Sequence[SmallPart], many: int, most_bytes: int) -> range | None:
    """`many` neighbours of one level, the first of them; None where there are not as many.

    A part of n windows is of the level log n to the base `many`, so that a day of windows becomes few parts, and no row
    is merged more often than there are levels. What is as large as a part should be stays as it is.
    """
    start = 0
    while start < len(parts):
        stop, size = start, 0
        level = _level(parts[start].windows, many)
        while stop < len(parts) and stop - start < many and _level(parts[stop].windows, many) == level:
            if size + parts[stop].size_bytes > most_bytes:
                break
            size += parts[stop].size_bytes
            stop += 1
        if stop - start == many or (stop - start > 1 and _is_filled(parts, stop, size, most_bytes, level, many)):
            return range(start, stop)
        start = max(stop, start + 1)
    return None


def _is_filled(parts: Sequence[SmallPart], stop: int, size: int, most_bytes: int, level: int, many: int) -> bool:
    """Whether a run ends because its next part would make it too large, and not because there is none yet."""
    is_same = stop < len(parts) and _level(parts[stop].windows, many) == level
    return is_same and size + parts[stop].size_bytes > most_bytes


def _level(windows: int, many: int) -> int:
    level = 0
    while windows >= many:
        windows //= many
        level += 1
    return level
