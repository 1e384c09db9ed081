"""Decides what one device runs next: live rows first, background rows in the remaining capacity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

from twoshift.policy.background_queue import BackgroundQueue, Block, Slice
from twoshift.policy.call_cutter import CallCutter
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_accounts import LaneAccounts
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.learned_curves import FORGET_S, LearnedCurves
from twoshift.policy.live_queue import LiveQueue
from twoshift.policy.planned_calls import CallRoom
from twoshift.policy.ride_along import CallDraft, RideAlong
from twoshift.policy.running_calls import RunningCalls
from twoshift.types import CallSize, Item

__all__ = ["LanePolicy"]

_EPSILON_S = 1e-9
_SMALL = 0.2  # of the time that rows have


class LanePolicy:
    """Chooses the next forward call for one device.

    Live rows go in deadline order and never wait for company; one that can no longer make its deadline is
    dropped rather than served late. Background rows ride along while the call stays within the budget and makes
    no waiting live row late, and as far as they pay: the knee of the curve ends a call, not the budget. All rows of
    a call have one signature. A device on which live calls overtake has a slot for each lane; there only background
    rows that cost nothing ride along. On one whose calls run in lanes side by side a row that is alone, or too long
    for a lane, has the whole device.
    """

    def __init__(self, cost: CallCost, limits: LaneLimits | None = None, lane_cost: CallCost | None = None) -> None:
        """`lane_cost` is the curve of a call in a lane, where it is known already."""
        self.limits = limits = limits or LaneLimits()
        self._budget_s = limits.budget_s
        self.running = RunningCalls(limits)
        self.curves = LearnedCurves(cost, limits, self.running, lane_cost)
        self.background = BackgroundQueue()
        self.accounts = LaneAccounts(limits, self.background)
        self.riders = RideAlong(limits, self.background, self.curves, self.accounts)
        predict_s = self.curves.predict_s
        whole_s = partial(predict_s, slot=Slot.WHOLE) if limits.lanes > 1 else None
        self.live = LiveQueue(CallCutter(self._room(), predict_s, limits.lanes, whole_s, limits.live_call_s))
        self.curves.changed = (self.riders.price, self.live.reprice)
        self._calls = itertools.count()

    # Events

    def submit(self, item: Item, now_s: float) -> None:
        """A live row arrived."""
        self.live.add(item, now_s)

    def submit_together(self, items: Sequence[Item], now_s: float) -> None:
        """The live rows of one request arrived."""
        self.live.add_together(items, now_s)

    def submit_block(self, block: Block, now_s: float) -> None:
        """Background rows arrived."""
        self.background.add(block)

    def cancel(self, key: int) -> bool:
        """Remove a live row from the queue; False if it is not there (any more)."""
        return self.live.remove(key)

    def cancel_block(self, key: int) -> Slice | None:
        """Remove a block from the queue; returns its remaining rows."""
        return self.background.remove(key)

    def hold(self, owner: int) -> None:
        """Hold an owner's blocks back, from the next decision on, until `release`."""
        self.background.hold(owner)

    def release(self, owner: int) -> None:
        """Let an owner's blocks run again."""
        self.background.release(owner)

    def finished(self, call: Call, elapsed_s: float, failed: bool = False, device_s: float | None = None) -> None:
        """A running call ended, after `elapsed_s`; a failed one says nothing about the cost.

        `device_s` is its part of the device's time, where it shared the device with another call.
        """
        ended_s = self.running.finished(call, elapsed_s)
        self.accounts.finished(call, elapsed_s if device_s is None else device_s)
        if not failed and self.curves.tells(call, elapsed_s, device_s):
            self.curves.lessons.append((call.slot, call.size, elapsed_s, ended_s))

    def cap_tokens(self, max_tokens: int) -> None:
        """Limit the tokens of all later calls: the device has run out of memory, or recovered."""
        self.riders.cap_tokens(max_tokens)

    def slow_down(self, factor: float, now_s: float) -> None:
        """The device is `factor` times as slow as the profile says for now, as calls outside this policy have shown."""
        self.curves.slow_down(factor, now_s)

    # Questions

    def done_by_s(self, more: CallSize, signature: int, now_s: float) -> float:
        """The latest time at which all live rows, with these added, are answered; does not look at each row.

        One call takes them all, or, where that is not known, each has one of its own.
        """
        busy_s = now_s
        for call, end_s in self.running.calls.values():
            if end_s > busy_s and call.slot is not Slot.BACKGROUND:
                busy_s = end_s
        live, slowest = self.live, self.curves.slowest
        rows, tokens, _, squares = more
        rows, tokens, squares = len(live) + rows, live.tokens + tokens, live.squares + squares
        most_s = slowest.at_most_s(rows, tokens, squares)
        is_alike = not live.is_mixed and (not len(live) or live.first_signature == signature)
        if rows > 1 and is_alike and live.cutter.fits(together := CallSize(rows, tokens, tokens, squares)):
            most_s = min(most_s, slowest.seconds(together))
        return busy_s + self.live_pace * most_s

    def seems_idle(self, size: CallSize, left_s: float) -> bool:
        """Whether these live rows would be answered in a small part of their time; uses values that may be old."""
        rows, tokens, longest, squares = size
        live = self.live
        all_rows = CallSize(len(live) + rows, live.tokens + tokens, longest, live.squares + squares)
        return self.curves.slowest.seconds(all_rows) < _SMALL * left_s

    def finish_about_s(self, size: CallSize, now_s: float, left_s: float) -> float:
        """When these live rows would be answered after all that are due before them, without planning their calls.

        Infinite if a waiting row would become late.
        """
        planned_s, due_s = self.live.planned_s(size, now_s + left_s)
        end_s = self.running.busy_until_s(now_s) + self.live_pace * planned_s
        return math.inf if end_s > due_s else end_s

    @property
    def has_live(self) -> bool:
        """Whether live rows wait or run."""
        return bool(len(self.live)) or self.running.has_live

    @property
    def live_pace(self) -> float:
        """How much longer live work takes while background work is owed its share."""
        return 1.0 / (1.0 - self.limits.min_share) if self.background.owed_blocks else 1.0

    # The decision

    def decide(self, now_s: float, slot: Slot = Slot.SHARED) -> Run | Drop | Idle:
        """What to do now; after a Drop, ask again."""
        curves, running = self.curves, self.running
        if curves.lessons:
            curves.learn()
        if now_s > curves.slots.stale_s:
            curves.age(now_s)
        if running.calls and not running.can_launch(slot):
            return Idle()
        self.accounts.check_owed()
        if slot is not Slot.BACKGROUND:
            self.live.fill(self._room())
            if self.live and (late := self.late_rows(now_s)):
                return Drop(tuple(self.live.take(late)), ())
        if slot is not Slot.LIVE and self._drops_first(now_s):
            return Drop((), (self.background.take_first_row(),))
        if self.limits.lanes > 1 and self._wants_whole(now_s):
            if running.calls:
                return Idle()
            slot = Slot.WHOLE
        draft = self._draft(now_s, slot)
        if draft.size.rows:
            return Run(self._launch(draft, now_s, slot))
        if slot is Slot.LIVE or not self.background:
            return Idle()
        if now_s < self.riders.resume_s:
            return Idle(self.riders.resume_s)
        # Only what was learned in a slow spell keeps these rows off the device.
        return self.decide(now_s, slot) if curves.believe_again(now_s) else Idle(running.quiet_since_s + FORGET_S)

    def late_rows(self, now_s: float) -> int:
        """Number of live rows, earliest deadline first, that can no longer meet their deadline."""
        return self.live.late(now_s + max(0.0, min(self.accounts.owed_s, self._budget_s / 2)))

    def ride_limit_s(self, now_s: float) -> float:
        """How long the next call may last: no waiting live row becomes late, and none sees all of two budgets."""
        plan = self.live.plan()
        if not plan:
            return math.inf
        patience_s = 2 * (1 - self.limits.tail_margin) * self._budget_s - (now_s - plan[0].oldest_s)
        return min(plan[0].predicted_s + max(0.0, self.live.slack_s(self.running.free_s(now_s))), patience_s)

    def _wants_whole(self, now_s: float) -> bool:
        """Whether the next row should use all lanes: it is too long for one lane, or there is no other row."""
        if plan := self.live.plan():
            beside = self.background and now_s >= self.riders.resume_s
            alone = len(plan) == 1 and plan[0].size.rows == 1 and not self.running.calls and not beside
            return alone or plan[0].is_whole
        first = self.background.first_row()
        return first is not None and self.curves.predict_s(first) > self._budget_s + _EPSILON_S

    def _drops_first(self, now_s: float) -> bool:
        """Whether no call that the budget allows can hold the first background row: it must not block the rest.

        What only a prediction speaks against is left to whoever runs this until no live row is there: a moment to try.
        """
        first = self.background.first_row()
        if first is None or (
            first.tokens <= self.limits.max_tokens and self.curves.ever_s(first) <= self._budget_s + _EPSILON_S
        ):
            return False
        return not self.has_live or self.curves.surely_outlasts(first, now_s)

    def _room(self) -> CallRoom:
        """Limits of live rows in a call: half of the call while background work is owed device time."""
        max_rows, max_tokens = self.limits.max_rows, self.riders.max_tokens
        if self.accounts.owed_s <= 0:
            return CallRoom(max_rows, max_tokens, self.curves.live_s)
        return CallRoom(max(1, max_rows // 2), max(1, max_tokens // 2), self._budget_s / 2)

    def _draft(self, now_s: float, slot: Slot) -> CallDraft:
        draft, riders, owed_s = CallDraft(), self.riders, self.accounts.owed_s
        limit_s = math.inf
        if self.live and slot is not Slot.BACKGROUND:
            # Owed rows that cannot ride with the next live rows get a call of their own, where there is time
            if slot is not Slot.LIVE and owed_s > 0 and not self.background.has_owed(self.live.first_signature):
                first = self.live.plan()[0]  # as below: later ones pay for the share
                riders.ride(draft, first.deadline_s - first.predicted_s - now_s, slot, owed_only=True)
                if draft.background:
                    return draft
            limit_s = self.ride_limit_s(now_s)
            self._take_live(draft)
        if slot is Slot.LIVE:
            # Background rows have a slot of their own: here they ride only where they add nothing.
            limit_s = min(limit_s, self.curves.predict_s(draft.size)) if draft.live else 0.0
        elif owed_s > 0:
            # Owed rows look only at the rows of this very call: later ones pay for the share.
            within_s = draft.live[0].deadline_s - now_s if draft.live else math.inf
            riders.ride(draft, within_s, slot, owed_only=True)
        if self.background:
            riders.fill(draft, limit_s, slot, now_s)
        return draft

    def _take_live(self, draft: CallDraft) -> None:
        plan = self.live.plan()
        if not plan:
            return
        draft.signature = plan[0].signature
        rows, free = plan[0].size.rows, self.limits.lanes - len(self.running.calls) - len(plan) + 1
        if free > 1 and rows > 1:  # the other lanes have nothing else to do
            draft.live = self.live.take(-(-rows // free))
            draft.size = CallSize.of(item.tokens for item in draft.live)
        else:
            draft.size = plan[0].size
            draft.live = self.live.take(rows)

    def _launch(self, draft: CallDraft, now_s: float, slot: Slot) -> Call:
        predicted_s = self.curves.predict_s(draft.size, slot)
        call = Call(next(self._calls), tuple(draft.live), tuple(draft.background), draft.size, predicted_s, slot)
        self.running.launched(call, now_s)
        if call.live:
            self.riders.live_launched(len(call.live), now_s)
        return call
