"""Latencies counted on a logarithmic scale: small, quick to add, and right to a percent or two."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["LatencyCounts"]

_LEAST_S, _MOST_S = 1e-5, 1e3
_STEP = math.log(1.02)  # latencies that count as one
_BUCKETS = math.ceil(math.log(_MOST_S / _LEAST_S) / _STEP) + 1


class LatencyCounts:
    """How many requests took how long. Values: adding makes another one."""

    __slots__ = ("_counts",)

    def __init__(self, counts: NDArray[np.int64] | None = None) -> None:
        self._counts = counts  # None: nothing was counted

    @classmethod
    def of(cls, seconds: Sequence[float]) -> LatencyCounts:
        """Many at once: one by one they would hold up the loop that serves."""
        if not seconds:
            return cls()
        places = np.log(np.clip(np.array(seconds), _LEAST_S, _MOST_S) / _LEAST_S) / _STEP
        return cls(np.bincount(places.round().astype(np.int64), minlength=_BUCKETS))

    @classmethod
    def over(cls, parts: Sequence[LatencyCounts]) -> LatencyCounts:
        """Of all of them together."""
        found = [each._counts for each in parts if each._counts is not None]
        return cls(np.sum(found, axis=0) if found else None)

    @property
    def requests(self) -> int:
        """How many were counted."""
        return 0 if self._counts is None else int(self._counts.sum())

    def quantile_s(self, share: float) -> float | None:
        """What this share of the requests took at most; None of nothing."""
        if self._counts is None:
            return None
        summed = np.cumsum(self._counts)
        place = int(np.searchsorted(summed, share * summed[-1]))
        return float(_LEAST_S * math.exp(place * _STEP))
