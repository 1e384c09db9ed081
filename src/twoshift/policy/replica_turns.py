"""Which of several replicas that are as good as each other is next, and which was forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from typing import Protocol

__all__ = ["Taker", "alike", "forgotten", "least_busy"]

_ALIKE = 1.1  # replicas that differ by less take turns
_FORGOTTEN = 32  # requests after which an idle replica gets one, however slow it was: it may be so no more


class Taker(Protocol):
    """A replica."""

    turn: int  # when it was last given a request

    @property
    def requests(self) -> Sized:
        """That it has."""
        ...


def alike(seconds: Mapping[int, float]) -> list[int]:
    """Those that are as good as the best, by number."""
    most_s = min(seconds.values()) * _ALIKE
    return [number for number, each_s in seconds.items() if each_s <= most_s]


def forgotten(replicas: Mapping[int, Taker], found: Collection[int], turn: int) -> int | None:
    """The one of those found that is idle for so long that nobody knows how quick it is; None: there is none."""
    oldest = min(found, key=lambda number: replicas[number].turn)
    each = replicas[oldest]
    return oldest if not len(each.requests) and turn - each.turn >= _FORGOTTEN else None


def least_busy(replicas: Mapping[int, Taker], found: Collection[int]) -> int:
    """The one of those found with the fewest requests; of several, the one that was given none for the longest."""
    return min(found, key=lambda number: (len(replicas[number].requests), replicas[number].turn))
