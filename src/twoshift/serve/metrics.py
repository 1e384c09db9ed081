"""What the server counts: histograms of one thread, and what the engines count themselves."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter

import numpy as np

from twoshift.serve.counts import HistogramCounts, MetricCounts
from twoshift.serve.stages import STAGES, Stages

__all__ = ["SECONDS", "Histogram", "ModelMetrics", "counted"]

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_RECENT, _RECENT_ELSEWHERE = 4096, 16_384
_MANY = 256  # requests that go into the histograms together
_all_stages = attrgetter(*STAGES)


def counted(counts: Iterable[int], bounds: tuple[float, ...]) -> list[tuple[str, float]]:
    """Upper bounds and how many lie at or below each, as Prometheus has it."""
    summed, found = 0, list[tuple[str, float]]()
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        summed += count
        found.append((bound, summed))
    return found


class Histogram:
    """Counts by bucket. Of one thread."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Many at once: one by one they would cost many times as much."""
        array = np.array(values)
        found = np.bincount(np.searchsorted(self.bounds, array), minlength=len(self.counts))
        self.counts = [before + more for before, more in zip(self.counts, found.tolist(), strict=True)]
        self.total += float(array.sum())

    def as_counts(self) -> HistogramCounts:
        """As it is now."""
        return HistogramCounts(tuple(self.counts), self.total)


class ModelMetrics:
    """One model's; observed on the server's loop alone. Attributes are of this process, `total` is of all."""

    def __init__(self) -> None:
        self._stages = {name: Histogram(SECONDS) for name in STAGES}
        self._latency = Histogram(SECONDS)
        self._answered: list[Stages] = []  # since the histograms were brought up to date
        self._replied: list[float] = []
        self.requests: dict[int, int] = {}  # status -> how many
        self.refusals: dict[str, int] = {}  # reason -> how many
        self.offered_rows = 0  # refused ones included
        self.refused_rows = 0  # that a larger fleet would have answered
        self.looked_up: dict[str, int] = {}  # what was found -> rows, where there are precomputed answers
        self.slo_s: float | None = None  # of its requests; None: of a language model, whose sequences are counted
        self.within_slo = self.outside_slo = 0  # requests
        self.written_back: dict[str, int] = {}  # outcome -> rows that were computed live, where they are kept
        self.elsewhere = MetricCounts()  # by other processes of this server; replaced whole by whoever hears from them
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._unreported = 0  # of those, the last so many
        self._recent_elsewhere: deque[tuple[float, float]] = deque(maxlen=_RECENT_ELSEWHERE)
        self._untaken: deque[tuple[float, float]] = deque(maxlen=_RECENT_ELSEWHERE)  # of those, since they were taken

    def answered(self, stages: Stages) -> None:
        """A request that has its results."""
        self._answered.append(stages)
        if len(self._answered) >= _MANY:
            self._add_stages()

    def replied(self, status: int, seconds: float, refusal: str | None) -> None:
        """A request that has its reply."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self._replied.append(seconds)
        if len(self._replied) >= _MANY:
            self._add_latencies()
        if status in (200, 504):  # who got no answer in time has waited for it, too
            self._recent.append((time.monotonic(), seconds))
            self._unreported += 1
        if status >= 500:
            self.outside_slo += 1
        elif status == 200 and self.slo_s is not None:
            if seconds <= self.slo_s:
                self.within_slo += 1
            else:
                self.outside_slo += 1
        if refusal is not None:
            self.refusals[refusal] = self.refusals.get(refusal, 0) + 1

    def refused_unread(self, seconds: float, why: str, rows: int) -> None:
        """A request that was refused before it was parsed; of about so many rows."""
        self.replied(503, seconds, why)
        self.offered_rows += rows
        self.refused_rows += rows

    def looked(self, found: str) -> None:
        """A row was looked up among the precomputed answers."""
        self.looked_up[found] = self.looked_up.get(found, 0) + 1

    def counts(self) -> MetricCounts:
        """By this process so far."""
        self._add_stages()
        self._add_latencies()
        stages = {name: each.as_counts() for name, each in self._stages.items()}
        counted = dict(self.requests), dict(self.refusals), self.offered_rows, self.refused_rows, dict(self.looked_up)
        objective = self.within_slo, self.outside_slo
        return MetricCounts(stages, self._latency.as_counts(), *counted, *objective, dict(self.written_back))

    def total(self) -> MetricCounts:
        """By all processes of the server."""
        return self.counts().plus(self.elsewhere)

    def total_rows(self) -> tuple[int, int]:
        """By all processes of the server: those offered, and those refused. From any thread."""
        elsewhere = self.elsewhere
        return self.offered_rows + elsewhere.offered_rows, self.refused_rows + elsewhere.refused_rows

    def requests_by_status(self) -> dict[int, int]:
        """Replies by all processes of the server; less than `total` has to do."""
        elsewhere = self.elsewhere.requests
        return {each: self.requests.get(each, 0) + elsewhere.get(each, 0) for each in {*self.requests, *elsewhere}}

    def _add_stages(self) -> None:
        found, self._answered = self._answered, []
        if found:
            for name, values in zip(STAGES, zip(*map(_all_stages, found), strict=True), strict=True):
                self._stages[name].add(values)

    def _add_latencies(self) -> None:
        found, self._replied = self._replied, []
        if found:
            self._latency.add(found)

    def recent(self) -> list[tuple[float, float]]:
        """The last requests that were answered or too late: when, on the monotonic clock, and their seconds.

        In the order in which they ended, of all processes as far as they were heard of. From any thread.
        """
        own, others = self._recent.copy(), self._recent_elsewhere.copy()
        return sorted([*own, *others]) if others else list(own)

    def take_recent(self) -> list[tuple[float, float]]:
        """Those of this process since they were last taken, for the process that keeps them for all."""
        new, self._unreported = min(self._unreported, len(self._recent)), 0
        return list(islice(self._recent, len(self._recent) - new, None))

    def heard_recent(self, ended: Sequence[tuple[float, float]]) -> None:
        """What another process has taken."""
        self._recent_elsewhere.extend(ended)
        self._untaken.extend(ended)

    def take_all_recent(self) -> list[tuple[float, float]]:
        """As `take_recent`, of all processes; for the one that has heard of the others."""
        return self.take_recent() + [self._untaken.popleft() for _ in range(len(self._untaken))]
