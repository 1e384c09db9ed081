"""What others do with a device: the policies that ours is compared with."""

from __future__ import annotations

from dataclasses import replace

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy

__all__ = ["GreedyPolicy", "StrictPolicy", "WindowPolicy"]


class GreedyPolicy(LanePolicy):
    """Serves everything in order, however late: no early drop, and nothing is refused."""

    def __init__(self, cost: CallCost, limits: LaneLimits) -> None:
        super().__init__(cost, replace(limits, slo_s=None, call_budget_s=None))

    def late_rows(self, now_s: float) -> int:
        return 0

    def ride_limit_s(self, now_s: float) -> float:
        return self.limits.budget_s


class StrictPolicy(LanePolicy):
    """Priority with separate calls: live calls carry live rows only, background calls are as large as they go."""

    def __init__(self, cost: CallCost, limits: LaneLimits) -> None:
        super().__init__(cost, replace(limits, slo_s=None, call_budget_s=None))

    def ride_limit_s(self, now_s: float) -> float:
        return 0.0 if len(self.live) else self.limits.budget_s


class WindowPolicy(GreedyPolicy):
    """Holds the first live row back for up to `wait_s`, hoping for company."""

    wait_s = 0.005

    def __init__(self, cost: CallCost, limits: LaneLimits) -> None:
        super().__init__(cost, limits)
        self._opened_s: float | None = None  # when the row that now waits longest was first seen

    def decide(self, now_s: float, slot: Slot = Slot.SHARED) -> Run | Drop | Idle:
        if self.running.calls or not len(self.live):
            return super().decide(now_s, slot)
        if self._opened_s is None:
            self._opened_s = now_s
        closes_s = self._opened_s + self.wait_s
        if len(self.live) < self.limits.max_rows and now_s < closes_s:
            return Idle(closes_s)
        self._opened_s = None
        return super().decide(now_s, slot)
