"""Admit a request, or refuse it at once and say when to retry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twoshift.policy.lanes import LanePolicy
from twoshift.policy.learned_curves import MOST_WRONG
from twoshift.policy.planned_calls import PlannedCall, ends
from twoshift.types import CallSize, Item

__all__ = ["MAX_WAITING", "AdmissionPolicy", "Admit", "Answer", "Never", "Refuse", "Try"]

MAX_WAITING = 4096  # rows

_EPSILON_S = 1e-9
_TRY_FOR = 2.0  # times what it is predicted to take


class Admit(NamedTuple):
    """The request is predicted to finish in time, and no admitted request becomes late."""

    finish_s: float


class Refuse(NamedTuple):
    """The device is at capacity; without new arrivals, the same request is admitted after `retry_after_s`."""

    retry_after_s: float
    reason: str


class Never(NamedTuple):
    """The request would miss its deadline even on an idle device."""

    reason: str
    accepted: str = "a smaller request, or a larger value in the header x-request-timeout-ms"


class Try(NamedTuple):
    """The request is predicted to be late, but no call of its size has confirmed it: queue it with this deadline."""

    until_s: float


Answer = Admit | Try | Refuse | Never


class AdmissionPolicy:
    """Admits the requests that the device can answer in time, by the same plan that the lane policy follows."""

    def __init__(self, lanes: LanePolicy, max_waiting: int = MAX_WAITING) -> None:
        self._lanes = lanes
        self.max_waiting = max_waiting

    def decide(self, items: Sequence[Item], now_s: float, since_s: float | None = None, spare_s: float = 0.0) -> Answer:
        """All rows of a request or none. Does not queue them: `LanePolicy.submit` does.

        `since_s` is when its time began, where it has waited elsewhere: that does not make it one for never. It is to
        be answered `spare_s` before its deadline. Nobody asks that of those who wait already: rows that were admitted
        in a moment of doubt would keep others out of their calls. Nor of who is alone: nobody else could teach us more.
        """
        if not items:
            return Admit(now_s)
        self._lanes.curves.age(now_s)
        size = CallSize.of([item.tokens for item in items])
        deadline_s = items[0].deadline_s if len(items) == 1 else min([item.deadline_s for item in items])
        spare_s = spare_s if self._lanes.has_live else 0.0
        by_s = deadline_s - spare_s
        if (finish_s := self._surely_s(size, items[0].signature, by_s, now_s)) is not None:
            return Admit(finish_s)
        if len(items) == 1 and (finish_s := self._last_finish_s(items[0], now_s)) is not None and finish_s <= by_s:
            return Admit(finish_s)
        left_s = deadline_s - (now_s if since_s is None else since_s)
        if unlikely := self.unlikely(items, size, left_s, now_s):
            if isinstance(unlikely, Never) or not self._lanes.has_live:
                return unlikely
            return Refuse(
                self._idle_in_s(now_s),
                "the request may miss its deadline, so it runs only when no other request is waiting",
            )
        if len(self._lanes.live) + len(items) > self.max_waiting:
            return Refuse(self._wait_s(items, now_s, spare_s), f"{len(self._lanes.live)} rows are already waiting")
        finish_s = self._finish_s(items, now_s, spare_s)
        if finish_s is None and not len(self._lanes.live) and self._lanes.curves.believe_again(now_s):
            finish_s = self._finish_s(items, now_s, spare_s)
        if finish_s is None:
            return Refuse(self._wait_s(items, now_s, spare_s), "the queue is too long to answer by the deadline")
        return Admit(finish_s)

    def admits_all(self, size: CallSize, signature: int, deadline_s: float, now_s: float) -> bool:
        """Whether rows of this size, with this earliest deadline, are certain to be admitted.

        If True, `decide` admits each request among them, one after the other.
        """
        self._lanes.curves.age(now_s)
        return self._surely_s(size, signature, deadline_s, now_s) is not None

    def admits_each(self, items: Sequence[Item], now_s: float, spare_s: float = 0.0) -> bool:
        """Whether rows of several requests, each with its own deadline, are all admitted, by one plan."""
        lanes = self._lanes
        lanes.curves.age(now_s)
        if len(lanes.live) + len(items) > self.max_waiting:
            return False
        if any(item.tokens > lanes.limits.max_tokens for item in items):
            return False
        return self._finish_s(items, now_s, spare_s) is not None

    def _surely_s(self, size: CallSize, signature: int, deadline_s: float, now_s: float) -> float | None:
        """The latest time at which all rows are answered, if that meets every deadline; else None.

        A quick test that suffices for most requests; None means that only the plan can tell.
        """
        lanes = self._lanes
        if size.longest > lanes.limits.max_tokens or len(lanes.live) + size.rows > self.max_waiting:
            return None
        end_s = lanes.done_by_s(size, signature, now_s)
        return None if end_s > deadline_s or end_s > lanes.live.first_deadline_s else end_s

    def _last_finish_s(self, item: Item, now_s: float) -> float | None:
        """When a single row at the end of the queue would be answered, without a look at the whole queue.

        None if it would be late, would make a row in its call late, or does not go to the end.
        """
        lanes = self._lanes
        if item.tokens > lanes.limits.max_tokens or len(lanes.live) >= self.max_waiting:
            return None
        joined = lanes.live.joined(item, now_s)
        if joined is None:
            return None
        before_s, own_s = joined.before_s * lanes.live_pace, joined.call.predicted_s * lanes.live_pace
        end_s = lanes.running.busy_until_s(now_s) + before_s + own_s
        if lanes.curves.margin and joined.calls:
            many_s = math.sqrt(before_s * before_s / joined.calls + own_s * own_s)
            end_s -= lanes.curves.margin * (before_s + own_s - many_s)
        return None if end_s > joined.call.deadline_s + _EPSILON_S else end_s

    def _finish_s(self, items: Sequence[Item], now_s: float, spare_s: float) -> float | None:
        """When these rows would be answered; None if they, or a row before them, would be late."""
        free_s, own_s = self._lanes.running.free_s(now_s), now_s
        newest_s = max(item.deadline_s for item in items)
        plan = self._lanes.live.plan_with(items, now_s)
        for call, end_s in zip(plan, ends(plan, free_s, self._lanes.live_pace, self._lanes.curves.margin), strict=True):
            if end_s > call.deadline_s + _EPSILON_S:
                return None
            if call.deadline_s <= newest_s:
                own_s = max(own_s, end_s)
        return None if own_s > newest_s - spare_s + _EPSILON_S else own_s

    def unlikely(self, items: Sequence[Item], size: CallSize, left_s: float, now_s: float) -> Never | Try | None:
        """Why not even an idle device could answer these rows in time; None where it is predicted to.

        A prediction alone is no evidence: the curve may be that of a busy moment, and what is refused teaches nothing.
        """
        limits = self._lanes.limits
        if size.longest > limits.max_tokens:
            reason = f"a row has {size.longest} tokens, but a call may have at most {limits.max_tokens} tokens"
            return Never(reason, f"rows of at most {limits.max_tokens} tokens")
        if len(items) > self.max_waiting:
            reason = f"the request has {len(items)} rows, but the queue may hold at most {self.max_waiting} rows"
            return Never(reason, f"at most {self.max_waiting} rows in a request")
        one_call = size.rows <= limits.max_rows and size.tokens <= limits.max_tokens
        if one_call and self._lanes.curves.ever_s(size, len(items) == 1) <= min(left_s, limits.live_call_s):
            return None
        calls = self._lanes.live.cut(items, now_s)
        needed_s = self._idle_s(_taking(call, self._lanes.curves.ever_s(call.size, call.is_whole)) for call in calls)
        if needed_s <= left_s + _EPSILON_S:
            return None
        fastest_s = self._fastest_s(calls, now_s) or needed_s / MOST_WRONG
        if fastest_s <= left_s:
            return Try(now_s + _TRY_FOR * needed_s)
        left_ms = max(0.0, left_s) * 1e3
        return Never(f"it needs {needed_s * 1e3:.3g} ms on an idle device, but its deadline is in {left_ms:.3g} ms")

    def _fastest_s(self, calls: Sequence[PlannedCall], now_s: float) -> float | None:
        """Least time of these calls, from recent calls of their sizes; None if not known."""
        known = [(call, self._lanes.curves.fastest_s(call.size, call.is_whole, now_s)) for call in calls]
        found = [_taking(call, seconds) for call, seconds in known if seconds is not None]
        return self._idle_s(found) if len(found) == len(calls) else None

    def _idle_s(self, calls: Iterable[PlannedCall]) -> float:
        """Time of these calls on an idle device."""
        return max(ends(calls, [0.0] * self._lanes.limits.lanes))

    def _idle_in_s(self, now_s: float) -> float:
        """Time until no live row waits or runs."""
        free_s = self._lanes.running.free_s(now_s)
        return max(_EPSILON_S, max([*free_s, *ends(self._lanes.live.plan(), free_s)]) - now_s)

    def _wait_s(self, items: Sequence[Item], now_s: float, spare_s: float) -> float:
        """Time until the last waiting call has launched and the rest of the queue leaves enough time for these rows."""
        plan = self._lanes.live.plan()
        # Background rows that ride stretch each call to the budget at the most.
        stretch_s = self._lanes.limits.budget_s if self._lanes.background else 0.0
        free_s = self._lanes.running.free_s(now_s)
        stretched = (_taking(call, max(call.predicted_s, stretch_s)) for call in plan)
        drained_s = max([*free_s, *ends(stretched, free_s)])
        last_launch_s = drained_s - (max(plan[-1].predicted_s, stretch_s) if plan else 0.0)
        alone_s = self._idle_s(self._lanes.live.cut(items, now_s))
        allowed_s = min(item.deadline_s for item in items) - spare_s - now_s
        return max(_EPSILON_S, last_launch_s - now_s, drained_s + alone_s - allowed_s - now_s)


def _taking(call: PlannedCall, seconds: float) -> PlannedCall:
    return call._replace(predicted_s=seconds, share_s=seconds if call.is_whole else 0.0)
