"""How many background rows a call takes, beside live rows and alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from twoshift.policy.background_queue import BackgroundQueue, Slice
from twoshift.policy.lane_accounts import LaneAccounts
from twoshift.policy.lane_values import LaneLimits, Slot
from twoshift.policy.learned_curves import FORGET_S, LearnedCurves
from twoshift.policy.pace import Pace, PacePolicy
from twoshift.types import CallSize, Item, Lane

__all__ = ["CallDraft", "RideAlong"]

_EMPTY = CallSize(0, 0, 0, 0)
_EPSILON_S = 1e-9


@dataclass(slots=True)
class CallDraft:
    """A call that is being assembled."""

    live: list[Item] = field(default_factory=list[Item])
    background: list[Slice] = field(default_factory=list[Slice])
    size: CallSize = _EMPTY
    signature: int = 0  # of its rows, where there are any


class RideAlong:
    """Adds background rows to a call while it stays within the caps and the budget, and as far as they pay."""

    def __init__(
        self, limits: LaneLimits, background: BackgroundQueue, curves: LearnedCurves, accounts: LaneAccounts
    ) -> None:
        self._limits, self._background, self._curves = limits, background, curves
        self._live_use = accounts.use[Lane.ONLINE]
        self._budget_s = limits.budget_s
        self.max_tokens = limits.max_tokens  # of a call now; lower than the limit while memory is short
        self.resume_s = -math.inf  # before then no call without live rows begins: they would be slowed down too much
        self._pace = PacePolicy(limits)
        self.price()

    def price(self) -> None:
        """The cost curves have changed."""
        curves, cautious = self._curves, self._curves.cautious
        self._pace.price(cautious[curves.background_slot], cautious[curves.live_slot], cautious[curves.whole_slot])

    def cap_tokens(self, max_tokens: int) -> None:
        """Limit the tokens of all later calls."""
        self.max_tokens = min(max_tokens, self._limits.max_tokens)
        self._pace.cap_tokens(self.max_tokens)

    def live_launched(self, rows: int, now_s: float) -> None:
        """A call with this many live rows starts."""
        self._pace.launched(rows, now_s)

    def pace(self, now_s: float) -> Pace:
        """The current limits for background rows beside live rows."""
        live = self._live_use
        return self._pace.pace(self._background.row_tokens(), now_s, live.tokens / live.rows if live.rows else 0)

    def fill(self, draft: CallDraft, limit_s: float, slot: Slot, now_s: float) -> None:
        """Add background rows as far as they pay: beside live rows while they slow them little, else to the knee."""
        pace, predict_s = self.pace(now_s), self._curves.predict_s
        if draft.live:
            live_s = predict_s(draft.size, slot)
            self.ride(draft, min(limit_s, max(live_s, min(pace.call_s, live_s + pace.ride_s))), slot)
            return
        if now_s < self.resume_s:
            return
        if not pace.spare_s:
            self.resume_s = now_s + FORGET_S  # it may be another one by then
            return
        self.ride(draft, min(limit_s, pace.call_s), slot)
        if self._stops_short(draft, pace.call_s, slot):
            self.ride(draft, limit_s, slot, max_rows=draft.size.rows + 1)  # the row that reaches the knee
        if draft.background and pace.spare_s < math.inf:
            predicted_s = predict_s(draft.size, slot)
            share = pace.share(predicted_s)
            self.resume_s = now_s + predicted_s / (share * pace.lanes) if share < 1 else now_s

    def ride(
        self, draft: CallDraft, limit_s: float, slot: Slot, owed_only: bool = False, max_rows: int | None = None
    ) -> None:
        """Add background rows while the call stays within the caps, the budget and the limit."""
        within_s = min(limit_s, self._budget_s) + _EPSILON_S
        seconds_of = self._curves.cautious[slot].seconds  # asked a dozen times a call

        def fits(size: CallSize) -> bool:
            # A row alone is tried even where memory is short: nothing smaller can be made of it.
            most = self._limits.max_tokens if size.rows == 1 else self.max_tokens
            return size.tokens <= most and seconds_of(size) <= within_s

        taken, draft.size, draft.signature = self._background.take(
            draft.size, max_rows or self._limits.max_rows, fits, owed_only, draft.signature
        )
        draft.background = _joined(draft.background, taken)

    def _stops_short(self, draft: CallDraft, call_s: float, slot: Slot) -> bool:
        """Whether one more row of the same block is wanted."""
        if draft.size.rows >= self._limits.max_rows:
            return False
        if self._curves.predict_s(draft.size, slot) >= call_s - _EPSILON_S:
            return False
        return not draft.background or draft.background[-1].block in self._background


def _joined(first: list[Slice], more: list[Slice]) -> list[Slice]:
    """The slices of a call, one per block."""
    if first and more and first[-1].block == more[0].block:
        last, next_ = first.pop(), more.pop(0)
        first.append(last._replace(stop=next_.stop, tokens=last.tokens + next_.tokens))
    return first + more
