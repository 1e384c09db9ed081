"""Take a request, or refuse it at once and say when to come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twoshift.policy.lanes import LanePolicy
from twoshift.types import CallSize, Item

__all__ = ["MAX_WAITING", "AdmissionPolicy", "Admit", "Never", "Refuse"]

MAX_WAITING = 4096  # rows

_EPSILON_S = 1e-9


class Admit(NamedTuple):
    """It is predicted to finish in time, and nobody admitted before it becomes late."""

    finish_s: float


class Refuse(NamedTuple):
    """Full for now; with no new arrivals the same request is admitted after `retry_after_s`."""

    retry_after_s: float
    reason: str


class Never(NamedTuple):
    """It cannot be served in its time even by an idle device."""

    reason: str


class AdmissionPolicy:
    """Admits what the device can answer in time, by the very plan that the lane policy will follow."""

    def __init__(self, lanes: LanePolicy, max_waiting: int = MAX_WAITING) -> None:
        self._lanes = lanes
        self.max_waiting = max_waiting

    def decide(self, items: Sequence[Item], now_s: float) -> Admit | Refuse | Never:
        """All rows of a request or none. Does not queue them: `LanePolicy.submit` does."""
        if not items:
            return Admit(now_s)
        if len(items) == 1 and (finish_s := self._last_finish_s(items[0], now_s)) is not None:
            return Admit(finish_s)
        if never := self.impossible(items, now_s):
            return never
        if len(self._lanes.live) + len(items) > self.max_waiting:
            return Refuse(self._wait_s(items, now_s), f"{len(self._lanes.live)} rows wait already")
        finish_s = self._finish_s(items, now_s)
        if finish_s is None and not len(self._lanes.live) and self._lanes.believe_again(now_s):
            finish_s = self._finish_s(items, now_s)
        if finish_s is None:
            return Refuse(self._wait_s(items, now_s), "the queue is too long to answer in time")
        return Admit(finish_s)

    def is_tight(self, deadline_s: float, now_s: float) -> bool:
        """Whether what waits takes more than half of the time until then: only there is a refusal near."""
        lanes = self._lanes
        if not len(lanes.live):
            return False
        drained_s = lanes.busy_until_s(now_s) + lanes.live.planned_s() * lanes.live_pace
        return drained_s - now_s > (deadline_s - now_s) / 2 or len(lanes.live) > self.max_waiting // 2

    def _last_finish_s(self, item: Item, now_s: float) -> float | None:
        """When a single row at the end of the queue would be answered: most requests, and without a look at them all.

        None where it would be late, or make somebody in its call late, or does not go to the end.
        """
        lanes = self._lanes
        if item.tokens > lanes.limits.max_tokens or len(lanes.live) >= self.max_waiting:
            return None
        joined = lanes.live.joined(item, now_s)
        if joined is None:
            return None
        end_s = lanes.busy_until_s(now_s) + joined.end_s * lanes.live_pace
        return None if end_s > joined.call.deadline_s + _EPSILON_S else end_s

    def _finish_s(self, items: Sequence[Item], now_s: float) -> float | None:
        """When these rows would be answered; None where that, or somebody before them, would be late."""
        end_s = own_s = self._lanes.busy_until_s(now_s)
        newest_s = max(item.deadline_s for item in items)
        for call in self._lanes.live.plan_with(items):
            end_s += call.predicted_s * self._lanes.live_pace
            if end_s > call.deadline_s + _EPSILON_S:
                return None
            if call.deadline_s <= newest_s:
                own_s = end_s
        return own_s

    def impossible(self, items: Sequence[Item], now_s: float) -> Never | None:
        """Why not even an idle device could answer these rows in time; None where it could."""
        limits = self._lanes.limits
        longest = max(item.tokens for item in items)
        if longest > limits.max_tokens:
            return Never(f"a row of {longest} tokens; a call holds {limits.max_tokens}")
        if len(items) > self.max_waiting:
            return Never(f"{len(items)} rows; the queue holds {self.max_waiting}")
        left_s = min(item.deadline_s for item in items) - now_s
        whole = CallSize.uniform(1, longest) if len(items) == 1 else CallSize.of(item.tokens for item in items)
        one_call = whole.rows <= limits.max_rows and whole.tokens <= limits.max_tokens
        if one_call and self._lanes.ever_s(whole) <= min(left_s, limits.live_call_s):
            return None
        needed_s = sum(self._lanes.ever_s(call.size) for call in self._lanes.live.cut(items))
        if needed_s > left_s + _EPSILON_S:
            return Never(f"it takes {needed_s * 1e3:.3g} ms on an idle device and has {max(0.0, left_s) * 1e3:.3g} ms")
        return None

    def _alone_s(self, items: Sequence[Item]) -> float:
        return sum(call.predicted_s for call in self._lanes.live.cut(items))

    def _wait_s(self, items: Sequence[Item], now_s: float) -> float:
        """Until the last waiting call has launched and what follows it leaves time enough for these rows."""
        plan = self._lanes.live.plan()
        # Background rows that ride stretch each call to the budget at the most.
        stretch_s = self._lanes.limits.budget_s if self._lanes.background else 0.0
        drained_s = self._lanes.busy_until_s(now_s) + sum(max(call.predicted_s, stretch_s) for call in plan)
        last_launch_s = drained_s - (max(plan[-1].predicted_s, stretch_s) if plan else 0.0)
        allowed_s = min(item.deadline_s for item in items) - now_s
        return max(_EPSILON_S, last_launch_s - now_s, drained_s + self._alone_s(items) - allowed_s - now_s)
