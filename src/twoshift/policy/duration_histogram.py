"""Histograms of seconds with buckets 5 % wide: constant memory, whatever the number of values."""

from __future__ import annotations

import math

__all__ = ["DurationHistogram", "RunningMedian"]

_STEP = math.log(1.05)
_LEAST_S, _BUCKETS = 1e-3, 480  # from a millisecond to some five months


def _bucket(seconds: float) -> int:
    if seconds <= _LEAST_S:
        return 0
    steps = int(math.log(seconds / _LEAST_S) / _STEP)
    return steps if steps < _BUCKETS else _BUCKETS - 1


def _middle_s(bucket: int) -> float:
    return _LEAST_S * math.exp((bucket + 0.5) * _STEP)


class DurationHistogram:
    """Weighted histogram of seconds, for quantiles."""

    def __init__(self) -> None:
        self._weights = [0.0] * _BUCKETS

    def add(self, seconds: float, weight: float) -> None:
        self._weights[_bucket(seconds)] += weight

    def scale(self, factor: float) -> None:
        """Multiplies every weight."""
        self._weights = [weight * factor for weight in self._weights]

    def quantile(self, share: float) -> float:
        """The seconds that this share of the weight does not exceed, to the width of a bucket."""
        above = (1 - share) * sum(self._weights)
        bucket = _BUCKETS - 1
        while bucket > 0 and (above := above - self._weights[bucket]) >= 0:
            bucket -= 1
        return _middle_s(bucket)


class RunningMedian:
    """The median of all seconds seen, at a constant cost for each.

    Over the whole job on purpose: the last commits are the stragglers', and would hide the stragglers left.
    """

    def __init__(self) -> None:
        self.count = 0
        self._counts = [0] * _BUCKETS
        self._middle = 0  # the bucket that holds the median
        self._below = 0  # how many are in the buckets before it

    def add(self, seconds: float) -> None:
        bucket = _bucket(seconds)
        self.count += 1
        self._counts[bucket] += 1
        self._below += bucket < self._middle
        while 2 * self._below > self.count:
            self._middle -= 1
            self._below -= self._counts[self._middle]
        while 2 * (self._below + self._counts[self._middle]) < self.count:
            self._below += self._counts[self._middle]
            self._middle += 1

    @property
    def value(self) -> float | None:
        return _middle_s(self._middle) if self.count else None
