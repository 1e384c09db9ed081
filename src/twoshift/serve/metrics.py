"""What the server counts: histograms of one thread, and what the engines count themselves."""

from __future__ import annotations

import bisect
import time
from collections import deque

from twoshift.serve.stages import STAGES, Stages

__all__ = ["Histogram", "ModelMetrics"]

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_RECENT = 4096


class Histogram:
    """Counts by bucket. Of one thread: the hot paths observe it millions of times."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


class ModelMetrics:
    """One model's; observed on the server's loop alone."""

    def __init__(self) -> None:
        self.stages = {name: Histogram(_SECONDS) for name in STAGES}
        self.latency = Histogram(_SECONDS)
        self.requests: dict[int, int] = {}  # status -> how many
        self.refusals: dict[str, int] = {}  # reason -> how many
        self.offered_rows = 0  # refused ones included
        self.refused_rows = 0  # that a larger fleet would have answered
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)

    def answered(self, stages: Stages) -> None:
        """A request that has its results."""
        for name, histogram in self.stages.items():
            histogram.observe(getattr(stages, name))

    def replied(self, status: int, seconds: float, refusal: str | None) -> None:
        """A request that has its reply."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.latency.observe(seconds)
        if status == 200:
            self._recent.append((time.monotonic(), seconds))
        if refusal is not None:
            self.refusals[refusal] = self.refusals.get(refusal, 0) + 1

    def recent(self) -> list[tuple[float, float]]:
        """The last requests that were answered: when, on the monotonic clock, and their seconds. From any thread."""
        return list(self._recent.copy())
