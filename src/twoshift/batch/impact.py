"""What live requests noticed of a job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

__all__ = ["LiveImpact", "Percentiles"]

_STEP = math.log(1.01)  # of latencies that count as one, where those of several runs are put together
_LEAST_S = 1e-6


class Percentiles(msgspec.Struct, frozen=True):
    """Of live requests' latency."""

    requests: int
    p50_s: float
    p99_s: float
    counts: dict[int, int] = {}  # by step of the latency's logarithm: what those of other runs can be added to

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Percentiles | None:
        """None of nothing."""
        if not seconds:
            return None
        ranked = sorted(seconds)
        counts = Counter(round(math.log(max(_LEAST_S, each)) / _STEP) for each in ranked)
        p50_s, p99_s = (ranked[_place(share, len(ranked))] for share in (0.5, 0.99))
        return cls(len(ranked), p50_s, p99_s, dict(counts))

    @classmethod
    def over(cls, parts: Iterable[Percentiles | None]) -> Percentiles | None:
        """Of them all together, to a percent; None of nothing. One alone stays as exact as it was."""
        found = [part for part in parts if part is not None]
        if len(found) <= 1:
            return found[0] if found else None
        counts = sum((Counter(part.counts) for part in found), Counter[int]())
        requests = sum(counts.values())
        if not requests:  # of runs that did not keep them
            return found[-1]
        p50_s, p99_s = (_reached(counts, _place(share, requests)) for share in (0.5, 0.99))
        return cls(requests, p50_s, p99_s, dict(sorted(counts.items())))


class LiveImpact(msgspec.Struct, frozen=True):
    """What live requests took while the job's rows ran beside them, and while they were held back."""

    beside: Percentiles | None
    alone: Percentiles | None
    slo_s: float | None = None  # the objective that they had

    @property
    def slowdown(self) -> float | None:
        """The median beside the job over that without it; None where one of them was not seen."""
        if self.beside is None or self.alone is None or not self.alone.p50_s:
            return None
        return self.beside.p50_s / self.alone.p50_s

    @classmethod
    def over(cls, runs: Iterable[LiveImpact | None]) -> LiveImpact | None:
        """Of all runs of a job; None where none was beside live requests."""
        found = [run for run in runs if run is not None]
        if not found:
            return None
        beside, alone = Percentiles.over(run.beside for run in found), Percentiles.over(run.alone for run in found)
        return cls(beside, alone, found[-1].slo_s)


def _place(share: float, count: int) -> int:
    return min(count - 1, int(share * count))


def _reached(counts: Counter[int], place: int) -> float:
    """The latency at that place of the ranks."""
    seen = 0
    for step in sorted(counts):
        seen += counts[step]
        if seen > place:
            return math.exp(step * _STEP)
    return 0.0
