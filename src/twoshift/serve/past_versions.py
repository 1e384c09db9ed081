"""What versions of a deployment have replied: the deployment counts all together, and this tells them apart."""

from __future__ import annotations

from typing import NamedTuple

from twoshift.serve.counts import HistogramCounts, MetricCounts

__all__ = ["PastVersions", "VersionCounts"]

_MOST = 20  # versions that are told apart: the oldest go


class VersionCounts(NamedTuple):
    """Requests of one version."""

    version: str
    role: str  # stable, candidate, or past
    share: float  # of live requests, now
    requests: dict[int, int]  # by status
    latency: HistogramCounts


class PastVersions:
    """Of one deployment. Whatever no other version has replied is the stable one's."""

    def __init__(self) -> None:
        self._ended: dict[str, MetricCounts] = {}

    def ended(self, stable: str, total: MetricCounts, candidate: str, beside: MetricCounts, promoted: bool) -> None:
        """A candidate is one no more: it answers alone, or not at all."""
        if not promoted:
            self._add(candidate, beside)
            return
        mine = self._without_others(total, beside)
        self._ended.pop(candidate, None)  # its counts of earlier go on as the stable version's
        self._add(stable, mine)

    def counts(
        self, stable: str, total: MetricCounts, candidate: tuple[str, float, MetricCounts] | None = None
    ) -> list[VersionCounts]:
        """Of every version that there is or was; of a candidate also its share of live requests."""
        version, share, beside = candidate or ("", 0.0, MetricCounts())
        now = [(stable, "stable", 1 - share, self._without_others(total, beside))]
        if candidate is not None:
            now.append((version, "candidate", share, beside))
        named = {version for version, *_ in now}
        past = [(version, "past", 0.0, MetricCounts()) for version in self._ended if version not in named]
        return [self._shown(*each) for each in (*now, *past)]

    def _shown(self, version: str, role: str, share: float, counts: MetricCounts) -> VersionCounts:
        all_of_it = counts.plus(self._ended.get(version, MetricCounts()))
        return VersionCounts(version, role, share, all_of_it.requests, all_of_it.latency)

    def _add(self, version: str, counts: MetricCounts) -> None:
        self._ended[version] = self._ended.pop(version, MetricCounts()).plus(counts)
        while len(self._ended) > _MOST:
            del self._ended[next(iter(self._ended))]

    def _without_others(self, total: MetricCounts, beside: MetricCounts) -> MetricCounts:
        others = beside
        for each in self._ended.values():
            others = others.plus(each)
        requests = {status: max(0, n - others.requests.get(status, 0)) for status, n in total.requests.items()}
        return MetricCounts(latency=_less(total.latency, others.latency), requests=requests)


def _less(total: HistogramCounts, others: HistogramCounts) -> HistogramCounts:
    if not others.counts:
        return total
    counts = tuple(max(0, a - b) for a, b in zip(total.counts, others.counts, strict=True))
    return HistogramCounts(counts, max(0.0, total.total - others.total))
