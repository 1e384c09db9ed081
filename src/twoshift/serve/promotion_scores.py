"""Whether promoted versions are as quick as their rollouts said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twoshift.prediction_ports import Prediction
from twoshift.serve.counts import HistogramCounts
from twoshift.serve.deployments import Deployment

__all__ = ["LATENCY", "PromotionScores"]

LATENCY = "mean latency of a version, before and after its promotion"
_AFTER_S = 300.0  # in which it is measured
_FEWEST = 20  # requests on either side


@dataclass(frozen=True, slots=True)
class _Open:
    deployment: Deployment
    rollout: str
    predicted_s: float
    before: HistogramCounts  # of the deployment, when the version was promoted
    due_s: float


class PromotionScores:
    """Of one server; one thread calls it."""

    def __init__(self) -> None:
        self._open: list[_Open] = []

    def promoted(self, deployment: Deployment, rollout: str, candidate: HistogramCounts, now_s: float) -> None:
        """What its candidate took while it was judged is what it is said to take."""
        self._open = [each for each in self._open if each.deployment is not deployment]  # another version answers now
        if (count := sum(candidate.counts)) >= _FEWEST:
            before = deployment.metrics.total().latency
            self._open.append(_Open(deployment, rollout, candidate.total / count, before, now_s + _AFTER_S))

    def due(self, now_s: float) -> Iterator[Prediction]:
        """Those whose time is over."""
        for each in [each for each in self._open if each.due_s <= now_s]:
            self._open.remove(each)
            now = each.deployment.metrics.total().latency
            count = sum(now.counts) - sum(each.before.counts)
            if count >= _FEWEST:
                measured_s = (now.total - each.before.total) / count
                name = each.deployment.name
                yield Prediction("rollout", name, LATENCY, "s", each.predicted_s, measured_s, now_s, each.rollout)
