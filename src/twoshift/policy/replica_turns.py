"""Which of several equally good replicas is next, and which was not used for long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from typing import Protocol

__all__ = ["Taker", "alike", "forgotten", "least_busy"]

_ALIKE = 1.1  # replicas that differ by less take turns
_FORGOTTEN = 32  # requests after which an idle replica gets one, however slow it was: it may be so no more


class Taker(Protocol):
    """A replica that takes requests."""

    turn: int  # when it was last given a request

    @property
    def requests(self) -> Sized:
        """That it has."""
        ...


def alike(seconds: Mapping[int, float]) -> list[int]:
    """The replicas that are as good as the best, by number."""
    most_s = min(seconds.values()) * _ALIKE
    return [number for number, each_s in seconds.items() if each_s <= most_s]


def forgotten(replicas: Mapping[int, Taker], found: Collection[int], turn: int) -> int | None:
    """A replica that was idle for so long that its speed is unknown; None if there is none."""
    oldest = min(found, key=lambda number: replicas[number].turn)
    each = replicas[oldest]
    return oldest if not len(each.requests) and turn - each.turn >= _FORGOTTEN else None


def least_busy(replicas: Mapping[int, Taker], found: Collection[int]) -> int:
    """The replica with the fewest requests; among equals, the one that got no request for the longest time."""
    return min(found, key=lambda number: (len(replicas[number].requests), replicas[number].turn))
