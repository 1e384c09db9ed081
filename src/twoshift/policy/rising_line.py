"""What calls took against what a curve says of them: a line from size to size that never falls.

Between two sizes that were seen it is straight. Calls that are larger than all of them take longer with one slope,
which stays near 1: what an interpreter adds to a small call is not multiplied. Calls that are smaller take their share
of the smallest one, or as long where the smallest ones take the same: what large calls take too long is not added to
them, and what every call takes is not left out. A size that was not seen for long gives way
to what the newer ones say of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["RisingLine", "Seen"]

_PRIOR = 0.02  # how much the curve's own slope counts beside calls of many sizes
_SLOPES = (0.25, 4.0)  # times the curve's


class Seen(NamedTuple):
    """Calls of about one size."""

    said_s: float  # by the curve
    took_s: float
    weight: float  # 1: just now


class RisingLine:
    """Seconds by what the curve says; above zero, and never less for more."""

    def __init__(self, seen: Sequence[Seen]) -> None:
        """At least one size."""
        points = sorted(seen)
        self.added_s, self.times = _straight(points)
        level = [
            each._replace(took_s=_mixed(each.took_s, self.added_s + self.times * each.said_s, each.weight))
            for each in points
        ]
        self._said = [each.said_s for each in points]
        self._took = _rising(level)
        self._first_slope = _first_slope(self._said, self._took)

    def __call__(self, said_s: float) -> float:
        said, took = self._said, self._took
        at = bisect_right(said, said_s)
        if at == 0:
            return took[0] - self._first_slope * (said[0] - said_s)
        if at == len(said):
            return took[-1] + self.times * (said_s - said[-1])
        share = (said_s - said[at - 1]) / (said[at] - said[at - 1])
        return took[at - 1] + share * (took[at] - took[at - 1])


def _first_slope(said: Sequence[float], took: Sequence[float]) -> float:
    """Of calls that are smaller than all that were seen: flat where the smallest ones are, and never below zero."""
    share = took[0] / said[0]
    if len(said) < 2 or said[1] <= said[0]:
        return share
    return min(share, (took[1] - took[0]) / (said[1] - said[0]))


def _mixed(seen_s: float, straight_s: float, weight: float) -> float:
    return seen_s if straight_s <= 0 else weight * seen_s + (1 - weight) * straight_s


def _straight(points: Sequence[Seen]) -> tuple[float, float]:
    """What is added to the curve, and what it is multiplied with; errors count relative to the size."""
    weights = [each.weight / each.said_s**2 for each in points]
    total = sum(weights)
    said = sum(weight * each.said_s for weight, each in zip(weights, points, strict=True)) / total
    took = sum(weight * each.took_s for weight, each in zip(weights, points, strict=True)) / total
    prior = _PRIOR * total * said**2
    across = sum(weight * (each.said_s - said) ** 2 for weight, each in zip(weights, points, strict=True)) + prior
    along = sum(
        weight * (each.said_s - said) * (each.took_s - took) for weight, each in zip(weights, points, strict=True)
    )
    along += prior * min(1.0, took / said)  # a device that is quicker is so by a factor
    times = min(_SLOPES[1], max(_SLOPES[0], along / across))
    return took - times * said, times


def _rising(points: Sequence[Seen]) -> list[float]:
    """Each size's seconds; where a larger one took less, both have their weighted mean."""
    pools = list[tuple[float, float, int]]()  # seconds, weight, sizes
    for each in points:
        pools.append((each.took_s, each.weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (later_s, later, many), (earlier_s, earlier, few) = pools.pop(), pools.pop()
            weight = earlier + later
            pools.append(((earlier * earlier_s + later * later_s) / weight, weight, few + many))
    return [seconds for seconds, _, sizes in pools for _ in range(sizes)]
