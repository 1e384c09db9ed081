"""What processes of a server have counted, as values that can be sent and summed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, Self, TypeVar

import msgspec

__all__ = ["CountsOfProcesses", "HistogramCounts", "MetricCounts", "TenantCounts"]

_Name = TypeVar("_Name", int, str)


class _Counts(Protocol):
    def plus(self, more: Self, /) -> Self: ...


_C = TypeVar("_C", bound=_Counts)


class HistogramCounts(msgspec.Struct, frozen=True):
    """How many lie in each bucket, and the sum of their values."""

    counts: tuple[int, ...] = ()  # none: nothing was counted
    total: float = 0.0

    def plus(self, more: HistogramCounts) -> HistogramCounts:
        """Of the same buckets."""
        if not self.counts or not more.counts:
            return self if self.counts else more
        counts = tuple(a + b for a, b in zip(self.counts, more.counts, strict=True))
        return HistogramCounts(counts, self.total + more.total)


class MetricCounts(msgspec.Struct, frozen=True):
    """Of one model, since the start of a process or of several."""

    stages: dict[str, HistogramCounts] = {}  # seconds of each, of requests that have their results
    latency: HistogramCounts = HistogramCounts()  # seconds of requests that have their reply
    requests: dict[int, int] = {}  # by status
    refusals: dict[str, int] = {}  # by reason
    offered_rows: int = 0  # refused ones included
    refused_rows: int = 0  # that a larger fleet would have answered
    looked_up: dict[str, int] = {}  # rows of models with precomputed answers, by what was found
    within_slo: int = 0  # requests answered within the objective
    outside_slo: int = 0  # requests answered later than that, or refused or failed by the server
    written_back: dict[str, int] = {}  # rows that were computed live, where they are kept, by outcome

    def plus(self, more: MetricCounts) -> MetricCounts:
        """Both together."""
        nothing = HistogramCounts()
        return MetricCounts(
            {
                name: self.stages.get(name, nothing).plus(more.stages.get(name, nothing))
                for name in {**self.stages, **more.stages}
            },
            self.latency.plus(more.latency),
            _summed(self.requests, more.requests),
            _summed(self.refusals, more.refusals),
            self.offered_rows + more.offered_rows,
            self.refused_rows + more.refused_rows,
            _summed(self.looked_up, more.looked_up),
            self.within_slo + more.within_slo,
            self.outside_slo + more.outside_slo,
            _summed(self.written_back, more.written_back),
        )


class TenantCounts(msgspec.Struct, frozen=True):
    """Of one tenant, since the start of a process or of several."""

    requests: int = 0
    refusals: dict[str, int] = {}  # by reason

    def plus(self, more: TenantCounts) -> TenantCounts:
        """Both together."""
        return TenantCounts(self.requests + more.requests, _summed(self.refusals, more.refusals))


class CountsOfProcesses(Generic[_C]):
    """What several processes have counted: it never becomes less when one of them ends."""

    def __init__(self, nothing: _C) -> None:
        self._gone = nothing  # of those that have ended
        self._heard: dict[int, _C] = {}

    def heard(self, process: int, counts: _C) -> None:
        """All that this process has counted so far."""
        self._heard[process] = counts

    def ended(self, process: int) -> None:
        """Nothing more comes from it; another one may have its number, and begins with nothing."""
        if (last := self._heard.pop(process, None)) is not None:
            self._gone = self._gone.plus(last)

    def total(self) -> _C:
        """Of all that there are and were."""
        found = self._gone
        for each in self._heard.values():
            found = found.plus(each)
        return found


def _summed(a: Mapping[_Name, int], b: Mapping[_Name, int]) -> dict[_Name, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
