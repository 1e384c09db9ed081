"""A cost curve for each slot of a device, and how the curves inform each other."""

from __future__ import annotations

import math

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits, Slot
from twoshift.policy.learn import OTHER_DEVICE, STALE_S, CostLearner
from twoshift.types import CallSize

__all__ = ["SlotCurves"]

_BOUND_SLACK = 1.25  # past a bound that is worth a correction: single rows vary as much with the clock of the cores


_MANY = 16  # such calls in one: what short calls take says little of others


class SlotCurves:
    """Each slot's curve follows the slot's own calls.

    Where calls run in lanes side by side, one device is behind all of them: a slot that has no newer evidence of its
    own follows the others. Evidence ages by the clock: after a silence every curve is what it usually is.
    """

    def __init__(self, cost: CallCost, limits: LaneLimits, lane_cost: CallCost | None = None) -> None:
        """`lane_cost` is the curve of a call in a lane, or of background calls, where that is known."""
        self._lanes, self._quantile = limits.lanes, limits.quantile
        self.learners = {slot: CostLearner(begun) for slot, begun in _begun(cost, limits, lane_cost).items()}
        # at the cautious quantile: by these is decided
        self.cautious = {slot: learner.cost.at(self._quantile) for slot, learner in self.learners.items()}
        self.usual = dict(self.cautious)  # what they are after a silence
        self.stale_s = math.inf  # from when on what was learned is too old; never, while nothing was
        self._others = {slot: [pair for pair in self.learners.items() if pair[0] is not slot] for slot in self.learners}

    def observed(self, slot: Slot, size: CallSize, seconds: float, ended_s: float) -> bool:
        """A call ended; True if a curve has changed."""
        changed = ended_s - seconds > self.stale_s and self.forget()
        learner = self.learners[slot]
        if news := learner.observed(size, seconds, ended_s):
            self._changed(slot)
            changed = True
        for name, other in self._others[slot]:
            if not (other.last_s < learner.since_s or other.last_s < ended_s - seconds - STALE_S):
                continue  # it has newer evidence of its own
            if self._followed(other, learner) or (news and self._bounded(name, other, learner, size)):
                self._changed(name)
                changed = True
        if changed or self.stale_s < math.inf:
            self.stale_s = ended_s + STALE_S
        return changed

    def forget(self) -> bool:
        """Return to the usual curves; True if a curve has changed."""
        changed = [learner.forget() for learner in self.learners.values()]
        self.cautious.update(self.usual)
        self.stale_s = math.inf
        return any(changed)

    def slow_down(self, factor: float, now_s: float) -> None:
        """The device is this many times as slow as usual, as calls outside the plan have shown."""
        for slot, learner in self.learners.items():
            learner.take_level(math.log(factor), now_s)
            self._changed(slot)
        self.stale_s = now_s + STALE_S

    def margin(self, slot: Slot) -> float:
        """Share of a cautious prediction that is safety margin."""
        return max(0.0, 1.0 - 1.0 / self.learners[slot].cost.ratio(self._quantile))

    def _followed(self, other: CostLearner, learner: CostLearner) -> bool:
        if self._lanes == 1:  # on streams beside each other one may be slow where the other is not
            return other.level != 0.0 and other.last_s < learner.last_s - STALE_S and other.forget()
        # A little slower than usual is a slot's own affair: only jumps are the device's.
        if abs(other.level - learner.level) <= OTHER_DEVICE:
            return False
        other.take_level(learner.level if abs(learner.level) > OTHER_DEVICE else 0.0, learner.last_s)
        return True

    def _bounded(self, name: Slot, other: CostLearner, learner: CostLearner, size: CallSize) -> bool:
        """In a lane a call takes no less than on the whole device, and at most as many times as there are lanes.

        On streams, what live calls have shown background calls may take, too.
        """
        if name is Slot.SHARED:
            least, most = 1.0, float(self._lanes)
        elif name is Slot.WHOLE:
            least, most = 1.0 / self._lanes, 1.0
        else:
            least, most = 0.0, 1.0 if name is Slot.BACKGROUND else math.inf
        many = CallSize(_MANY * size.rows, _MANY * size.tokens, size.longest, _MANY * size.squares)
        share = other.usual.seconds(many) / learner.usual.seconds(many)
        if least / _BOUND_SLACK <= share <= most * _BOUND_SLACK:
            return False
        other.scale_usual(min(most, max(least, share)) / share)
        return True

    def _changed(self, slot: Slot) -> None:
        learner = self.learners[slot]
        self.cautious[slot] = learner.cost.at(self._quantile)
        self.usual[slot] = self.cautious[slot] if learner.cost is learner.usual else learner.usual.at(self._quantile)


def _begun(cost: CallCost, limits: LaneLimits, lane_cost: CallCost | None) -> dict[Slot, CallCost]:
    if limits.lanes > 1:  # how much longer a call takes in a lane is learned: this is the most
        return {Slot.SHARED: lane_cost or cost.scaled(limits.lanes), Slot.WHOLE: cost}
    if limits.background_depth:  # beside background calls a live call takes longer: that says nothing about the others
        return {Slot.LIVE: cost, Slot.BACKGROUND: lane_cost or cost}
    return {Slot.SHARED: lane_cost or cost}
