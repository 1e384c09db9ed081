"""What one device runs next: live rows first, background rows in the room that is left."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import partial

from twoshift.errors import InvalidInput
from twoshift.policy.background_queue import BackgroundQueue, Block, Slice
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, LaneUse, Run, Slot, longest_live_s
from twoshift.policy.live_queue import LiveQueue, Room
from twoshift.policy.pace import Pace, PacePolicy
from twoshift.policy.slot_curves import SlotCurves
from twoshift.policy.typical_row import TypicalRow
from twoshift.types import CallSize, Item, Lane

__all__ = ["MOST_WRONG", "LanePolicy"]

_EMPTY = CallSize(0, 0, 0, 0)
_EPSILON_S = 1e-9
_SMALL = 0.2  # of the time that rows have
MOST_WRONG = 10.0  # times too slow that a curve may be: more than that needs no evidence
_FORGET_S = 1.0  # of silence, after which what was learned about a slow device is tried anew


@dataclass(slots=True)
class _Draft:
    """A call being formed."""

    live: list[Item] = field(default_factory=list[Item])
    background: list[Slice] = field(default_factory=list[Slice])
    size: CallSize = _EMPTY
    signature: int = 0  # of its rows, where there are any


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
        self.limits = limits or LaneLimits()
        self._budget_s = self.limits.budget_s
        self.max_tokens = self.limits.max_tokens  # of a call now; lower than the limit while memory is short
        self.use = {lane: LaneUse() for lane in Lane}
        self._live_slot = Slot.LIVE if self.limits.background_depth else Slot.SHARED
        self._background_slot = Slot.BACKGROUND if self.limits.background_depth else Slot.SHARED
        self._profile = cost
        self._curves = SlotCurves(cost, self.limits, lane_cost)
        self._cautious, self._usual = self._curves.cautious, self._curves.usual
        self._whole_slot = Slot.WHOLE if self.limits.lanes > 1 else self._live_slot
        self._pace = PacePolicy(self.limits)
        self._resume_s = -math.inf  # before then no call without live rows begins: they would be slowed down too much
        self._price()
        self._lessons: list[tuple[Slot, CallSize, float, float]] = []  # calls to learn from before the next decision
        self._quiet_since_s = -math.inf  # when the last call ended
        self._owed_s = 0.0  # device time that owed blocks are short of (below 0: ahead); 0 when there are none
        whole_s = partial(self.predict_s, slot=Slot.WHOLE) if self.limits.lanes > 1 else None
        self.live = LiveQueue(self._room(), self.predict_s, self.limits.lanes, whole_s, self.limits.live_call_s)
        self.live_row = TypicalRow()
        self.background = BackgroundQueue()
        self._running: dict[int, tuple[Call, float]] = {}  # number -> the call and its predicted end
        self._calls = itertools.count()

    @property
    def cost(self) -> CallCost:
        """The curve as learned so far, of calls with background rows."""
        self._learn()
        return self._curves.learners[self._background_slot].cost

    @property
    def whole_cost(self) -> CallCost:
        """The same, of live calls that have the device to themselves."""
        self._learn()
        return self._curves.learners[self._whole_slot].cost

    def usual_pace(self, size: CallSize) -> float:
        """How long such a call takes usually, as a share of what the profile says."""
        self._learn()
        # In a lane the profile is only a bound: that a call is quicker there says nothing about it.
        slots = (self._whole_slot,) if self.limits.lanes > 1 else (self._whole_slot, self._background_slot)
        return min(self._curves.learners[slot].usual.seconds(size) for slot in slots) / self._profile.seconds(size)

    # Events

    def submit(self, item: Item, now_s: float) -> None:
        """A live row arrived."""
        self.live.add(item, now_s)

    def submit_block(self, block: Block, now_s: float) -> None:
        """Background rows arrived."""
        self.background.add(block)

    def cancel(self, key: int) -> bool:
        """A live row is no longer wanted; False when it does not wait (any more)."""
        return self.live.remove(key)

    def cancel_block(self, key: int) -> Slice | None:
        """A block is no longer wanted; returns what was left of it."""
        return self.background.remove(key)

    def hold(self, owner: int) -> None:
        """An owner's blocks wait, from the next decision on, until it is released."""
        self.background.hold(owner)

    def release(self, owner: int) -> None:
        """An owner's blocks run again."""
        self.background.release(owner)

    def finished(self, call: Call, elapsed_s: float, failed: bool = False, device_s: float | None = None) -> None:
        """A running call ended, after `elapsed_s`; a failed one says nothing about the cost.

        `device_s` is its part of the device's time, where it shared the device with another call.
        """
        if call.number not in self._running:
            raise InvalidInput("call", call.number, "a call that is running")
        _, predicted_end_s = self._running.pop(call.number)
        ended_s = predicted_end_s - call.predicted_s + elapsed_s
        if ended_s > self._quiet_since_s:
            self._quiet_since_s = ended_s
        self._account(call, elapsed_s if device_s is None else device_s)
        if not failed:
            # a refit takes its time: answers go out first
            self._lessons.append((call.slot, call.size, elapsed_s, ended_s))

    def charge(self, lane: Lane, rows: int, tokens: int, elapsed_s: float) -> None:
        """The device worked for a lane outside a planned call: a failed call's rows were tried again."""
        self._charge(lane, rows, tokens, elapsed_s / max(1, tokens), 0)

    def cap_tokens(self, max_tokens: int) -> None:
        """No call may hold more tokens from now on: the device has run out of memory, or recovered."""
        self.max_tokens = min(max_tokens, self.limits.max_tokens)
        self._pace.cap_tokens(self.max_tokens)

    # Questions

    def predict_s(self, size: CallSize, slot: Slot | None = None) -> float:
        """The cautious prediction that every decision here is made with; of a live call unless told."""
        return self._cautious[slot or self._live_slot].seconds(size)

    def ever_s(self, size: CallSize, whole: bool = True) -> float:
        """What it may take at the best, usually or now: decides whether a row can ever fit."""
        slot = self._whole_slot if whole else self._live_slot
        return min(self._usual[slot].seconds(size), self._cautious[slot].seconds(size))

    def fastest_s(self, size: CallSize, whole: bool, now_s: float) -> float | None:
        """What it takes at the least, by the fastest calls of about its size lately; None where there were too few."""
        if self._lessons:
            self._learn()
        return self._curves.learners[self._whole_slot if whole else self._live_slot].fastest_s(size, now_s)

    def surely_outlasts(self, size: CallSize, now_s: float) -> bool:
        """Whether no call with background rows can hold these: calls of about their size have shown it lately."""
        if size.tokens > self.limits.max_tokens:
            return True
        fastest_s = self.fastest_s(size, True, now_s)
        return (self.ever_s(size) / MOST_WRONG if fastest_s is None else fastest_s) > self._budget_s + _EPSILON_S

    def done_by_s(self, rows: int, tokens: int, squares: int, now_s: float) -> float:
        """When all live rows, with so many more, are answered at the latest: without a look at each of them."""
        busy_s = now_s
        for call, end_s in self._running.values():
            if end_s > busy_s and call.slot is not Slot.BACKGROUND:
                busy_s = end_s
        live = self.live
        most_s = self._slowest.at_most_s(len(live) + rows, live.tokens + tokens, live.squares + squares)
        return busy_s + self.live_pace * most_s

    def busy_until_s(self, now_s: float) -> float:
        """When the call that live rows must wait for is predicted to end; now, where there is none.

        A lane is free by then where there are several: they are not all free later than on the average.
        """
        until_s = now_s
        for call, end_s in self._running.values():
            if end_s > now_s and call.slot is not Slot.BACKGROUND:
                until_s += (end_s - now_s) / (self.limits.lanes if call.slot is Slot.SHARED else 1)
        return until_s

    def seems_idle(self, size: CallSize, left_s: float) -> bool:
        """Whether so many more live rows would be answered in a small part of the time: by numbers that may be old."""
        rows, tokens, longest, squares = size
        live = self.live
        all_s = self._slowest.seconds(CallSize(len(live) + rows, live.tokens + tokens, longest, live.squares + squares))
        return all_s < _SMALL * left_s

    def finish_about_s(self, size: CallSize, now_s: float) -> float:
        """When so many more live rows would be answered behind all that wait, without a plan of their calls.

        Never, where somebody who waits would become late by them.
        """
        planned_s, due_s = self.live.planned_s(size)
        end_s = self.busy_until_s(now_s) + self.live_pace * planned_s
        return math.inf if end_s > due_s else end_s

    def free_s(self, now_s: float) -> list[float]:
        """When each lane is predicted to be free for live rows."""
        lanes = self.limits.lanes
        if lanes == 1:
            return [self.busy_until_s(now_s)]
        free_s = [max(now_s, end_s) for _, end_s in self._running.values()]
        if any(call.slot is Slot.WHOLE for call, _ in self._running.values()):
            return free_s * lanes
        return free_s + [now_s] * (lanes - len(free_s))

    @property
    def running(self) -> bool:
        """Whether a call is on the device."""
        return bool(self._running)

    @property
    def has_live(self) -> bool:
        """Whether live rows wait or run."""
        return bool(len(self.live)) or any(call.live for call, _ in self._running.values())

    @property
    def has_background(self) -> bool:
        """Whether background rows wait for their turn or run."""
        return bool(self.background) or any(call.background for call, _ in self._running.values())

    def can_launch(self, slot: Slot) -> bool:
        """Whether the slot has room for a call."""
        if not self._running:
            return True
        if slot is Slot.SHARED:
            lanes = self.limits.lanes
            return len(self._running) < lanes and all(call.slot is slot for call, _ in self._running.values())
        if slot is Slot.LIVE:
            return all(call.slot is not slot for call, _ in self._running.values())
        return sum(call.slot is slot for call, _ in self._running.values()) < self.limits.background_depth

    @property
    def live_pace(self) -> float:
        """How much longer live work takes while background work is owed its share."""
        return 1.0 / (1.0 - self.limits.min_share) if self.background.owed_blocks else 1.0

    # The decision

    def decide(self, now_s: float, slot: Slot = Slot.SHARED) -> Run | Drop | Idle:
        """What to do now; ask again after a Drop."""
        if self._lessons:
            self._learn()
        if now_s > self._curves.stale_s:
            self.age(now_s)
        if not self.can_launch(slot):
            return Idle()
        self._check_debt()
        if slot is not Slot.BACKGROUND:
            self.live.fill(self._room())
            if self.live and (late := self.late_rows(now_s)):
                return Drop(tuple(self.live.take(late)), ())
        if slot is not Slot.LIVE and self._drops_first(now_s):
            return Drop((), (self.background.take_first_row(),))
        if self.limits.lanes > 1 and self._wants_whole(now_s):
            if self._running:
                return Idle()
            slot = Slot.WHOLE
        draft = self._draft(now_s, slot)
        if draft.size.rows:
            return Run(self._launch(draft, now_s, slot))
        if slot is Slot.LIVE or not self.background:
            return Idle()
        if now_s < self._resume_s:
            return Idle(self._resume_s)
        # Only what was learned in a slow spell keeps these rows off the device.
        return self.decide(now_s, slot) if self.believe_again(now_s) else Idle(self._quiet_since_s + _FORGET_S)

    def believe_again(self, now_s: float) -> bool:
        """A curve that lets nothing run learns nothing: after a silence, try the device as it was measured."""
        if self.running or now_s - self._quiet_since_s < _FORGET_S - _EPSILON_S or not self._curves.forget():
            return False
        self._reprice()
        return True

    def age(self, now_s: float) -> None:
        """Forget what was learned too long ago, where nothing runs that could say more."""
        if now_s > self._curves.stale_s and not self._running and not self._lessons and self._curves.forget():
            self._reprice()

    def slow_down(self, factor: float, now_s: float) -> None:
        """The device is so many times as slow as the profile says, for now: somebody else's calls have shown it."""
        self._curves.slow_down(factor, now_s)
        self._reprice()

    def _learn(self) -> None:
        for slot, size, elapsed_s, ended_s in self._lessons:
            if self._curves.observed(slot, size, elapsed_s, ended_s):
                self._reprice()
        self._lessons.clear()

    def _reprice(self) -> None:
        self._price()
        self.live.reprice()

    def _price(self) -> None:
        """What follows from the curves."""
        self.margin = self._curves.margin(self._live_slot)  # of a prediction, that is caution
        self._live_s = longest_live_s(self._cautious[self._live_slot], self.limits)
        self._slowest = self._cautious[self._live_slot].at_least(self._cautious[self._whole_slot])
        curves = self._cautious
        self._pace.price(curves[self._background_slot], curves[self._live_slot], curves[self._whole_slot])

    def _wants_whole(self, now_s: float) -> bool:
        """Whether the next row is to have all lanes: it is too long for one, or nobody else is here."""
        if plan := self.live.plan():
            beside = self.background and now_s >= self._resume_s
            alone = len(plan) == 1 and plan[0].size.rows == 1 and not self._running and not beside
            return alone or plan[0].is_whole
        first = self.background.first_row()
        return first is not None and self.predict_s(first) > self._budget_s + _EPSILON_S

    def late_rows(self, now_s: float) -> int:
        """How many live rows, earliest deadline first, can no longer make it."""
        return self.live.late(now_s + max(0.0, min(self._owed_s, self._budget_s / 2)))

    def ride_limit_s(self, now_s: float) -> float:
        """How long the next call may last: no waiting live row becomes late, and none sees all of two budgets."""
        plan = self.live.plan()
        if not plan:
            return math.inf
        patience_s = 2 * (1 - self.limits.tail_margin) * self._budget_s - (now_s - plan[0].oldest_s)
        return min(plan[0].predicted_s + max(0.0, self.live.slack_s(self.free_s(now_s))), patience_s)

    def _drops_first(self, now_s: float) -> bool:
        """Whether no call that the budget allows can hold the first background row: it must not block the rest.

        What only a prediction speaks against is left to whoever runs this until no live row is there: a moment to try.
        """
        first = self.background.first_row()
        if first is None or (
            first.tokens <= self.limits.max_tokens and self.ever_s(first) <= self._budget_s + _EPSILON_S
        ):
            return False
        return not self.has_live or self.surely_outlasts(first, now_s)

    def _room(self) -> Room:
        """What live rows may fill: half of the call while background work is short of its share."""
        limits = self.limits
        if self._owed_s <= 0:
            return Room(limits.max_rows, self.max_tokens, self._live_s)
        return Room(max(1, limits.max_rows // 2), max(1, self.max_tokens // 2), self._budget_s / 2)

    def _check_debt(self) -> None:
        if not self.background.owed_blocks:
            self._owed_s = 0.0

    def _draft(self, now_s: float, slot: Slot) -> _Draft:
        draft = _Draft()
        limit_s = math.inf
        if self.live and slot is not Slot.BACKGROUND:
            if slot is not Slot.LIVE and self._owes_a_call():
                first = self.live.plan()[0]  # as below: later ones pay for the share
                self._ride(draft, first.deadline_s - first.predicted_s - now_s, slot, owed_only=True)
                if draft.background:
                    return draft
            limit_s = self.ride_limit_s(now_s)
            self._take_live(draft)
        if slot is Slot.LIVE:
            # Background rows have a slot of their own: here they ride only where they add nothing.
            limit_s = min(limit_s, self.predict_s(draft.size)) if draft.live else 0.0
        elif self._owed_s > 0:
            # Owed rows look only at the rows of this very call: later ones pay for the share.
            within_s = draft.live[0].deadline_s - now_s if draft.live else math.inf
            self._ride(draft, within_s, slot, owed_only=True)
        if self.background:
            self._fill(draft, limit_s, slot, now_s)
        return draft

    def _owes_a_call(self) -> bool:
        """Whether owed rows cannot ride with the next live rows: they get a call of their own, where there is time."""
        return self._owed_s > 0 and not self.background.has_owed(self.live.first_signature)

    def _take_live(self, draft: _Draft) -> None:
        plan = self.live.plan()
        if not plan:
            return
        draft.signature = plan[0].signature
        rows, free = plan[0].size.rows, self.limits.lanes - len(self._running) - len(plan) + 1
        if free > 1 and rows > 1:  # the other lanes have nothing else to do
            draft.live = self.live.take(-(-rows // free))
            draft.size = CallSize.of(item.tokens for item in draft.live)
        else:
            draft.size = plan[0].size
            draft.live = self.live.take(rows)

    def _fill(self, draft: _Draft, limit_s: float, slot: Slot, now_s: float) -> None:
        """Add background rows as far as they pay: beside live rows while they slow them little, else to the knee."""
        pace = self.background_pace(now_s)
        if draft.live:
            live_s = self.predict_s(draft.size, slot)
            self._ride(draft, min(limit_s, max(live_s, min(pace.call_s, live_s + pace.ride_s))), slot)
            return
        if now_s < self._resume_s:
            return
        if not pace.spare_s:
            self._resume_s = now_s + _FORGET_S  # it may be another one by then
            return
        self._ride(draft, min(limit_s, pace.call_s), slot)
        if self._stops_short(draft, pace.call_s, slot):
            self._ride(draft, limit_s, slot, max_rows=draft.size.rows + 1)  # the row that reaches the knee
        if draft.background and pace.spare_s < math.inf:
            predicted_s = self.predict_s(draft.size, slot)
            share = pace.share(predicted_s)
            self._resume_s = now_s + predicted_s / (share * pace.lanes) if share < 1 else now_s

    def _stops_short(self, draft: _Draft, call_s: float, slot: Slot) -> bool:
        """Whether one more row of the same block is wanted."""
        if draft.size.rows >= self.limits.max_rows or self.predict_s(draft.size, slot) >= call_s - _EPSILON_S:
            return False
        return not draft.background or draft.background[-1].block in self.background

    def background_pace(self, now_s: float) -> Pace:
        """What background rows may do beside live ones, at this moment."""
        live = self.use[Lane.ONLINE]
        return self._pace.pace(self.background.row_tokens(), now_s, live.tokens / live.rows if live.rows else 0)

    def _ride(
        self, draft: _Draft, limit_s: float, slot: Slot, owed_only: bool = False, max_rows: int | None = None
    ) -> None:
        """Add background rows while the call stays within the caps, the budget and the limit."""
        within_s = min(limit_s, self._budget_s) + _EPSILON_S
        seconds_of = self._cautious[slot].seconds  # asked a dozen times a call

        def fits(size: CallSize) -> bool:
            # A row alone is tried even where memory is short: nothing smaller can be made of it.
            most = self.limits.max_tokens if size.rows == 1 else self.max_tokens
            return size.tokens <= most and seconds_of(size) <= within_s

        taken, draft.size, draft.signature = self.background.take(
            draft.size, max_rows or self.limits.max_rows, fits, owed_only, draft.signature
        )
        draft.background = _joined(draft.background, taken)

    def _launch(self, draft: _Draft, now_s: float, slot: Slot) -> Call:
        predicted_s = self.predict_s(draft.size, slot)
        call = Call(next(self._calls), tuple(draft.live), tuple(draft.background), draft.size, predicted_s, slot)
        self._running[call.number] = (call, now_s + predicted_s)
        if call.live:
            self._pace.launched(len(call.live), now_s)
        return call

    # The books

    def _account(self, call: Call, elapsed_s: float) -> None:
        """Charge each lane its tokens' part of the call."""
        per_token_s = elapsed_s / max(1, call.size.tokens)
        background_tokens = 0
        for part in call.background:
            rows = part.stop - part.start
            background_tokens += part.tokens
            self._charge(part.lane, rows, part.tokens, per_token_s, rows if call.live else 0)
        if call.live:
            rows, tokens = len(call.live), call.size.tokens - background_tokens
            self._charge(Lane.ONLINE, rows, tokens, per_token_s, 0)
            self.live_row.observed(rows, tokens, call.size.squares * tokens / max(1, call.size.tokens))
        if self.background.owed_blocks and call.slot in (Slot.SHARED, Slot.WHOLE):
            short_s = self.limits.min_share * elapsed_s - background_tokens * per_token_s
            # What was overpaid is remembered, both ways for about one call.
            most_s = min(self._budget_s, 1.0)
            self._owed_s = min(most_s, max(-most_s, self._owed_s + short_s))

    def _charge(self, lane: Lane, rows: int, tokens: int, per_token_s: float, riding: int) -> None:
        use = self.use[lane]
        use.rows += rows
        use.tokens += tokens
        use.device_s += tokens * per_token_s
        use.riding_rows += riding


def _joined(first: list[Slice], more: list[Slice]) -> list[Slice]:
    """The slices of a call, one for each block."""
    if first and more and first[-1].block == more[0].block:
        last, next_ = first.pop(), more.pop(0)
        first.append(last._replace(stop=next_.stop, tokens=last.tokens + next_.tokens))
    return first + more
