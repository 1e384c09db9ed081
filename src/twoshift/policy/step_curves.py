"""What a language model's steps cost, by kind: those that only decode run as one graph, those that read do not."""

from __future__ import annotations

from twoshift.policy.cost import CallCost
from twoshift.policy.learn import CostLearner
from twoshift.types import CallSize

__all__ = ["StepCurves"]


class StepCurves:
    """A learned curve of each kind; both begin as the one that was measured. A `Curve`."""

    def __init__(self, cost: CallCost) -> None:
        self._decoding, self._reading = CostLearner(cost), CostLearner(cost)

    def observed(self, size: CallSize, seconds: float, ended_s: float) -> None:
        """Learn from one finished step."""
        (self._reading if size.longest > 1 else self._decoding).observed(size, seconds, ended_s)

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Of a step; one that reads takes at least as long as one that decodes as much."""
        decoding_s = self._decoding.cost.seconds(size, quantile)
        return decoding_s if size.longest <= 1 else max(decoding_s, self._reading.cost.seconds(size, quantile))
