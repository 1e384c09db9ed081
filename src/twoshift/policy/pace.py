"""Limits for background rows beside live rows: length of their calls, rows that ride along, and pauses."""

from __future__ import annotations

import math
from typing import NamedTuple

from twoshift.policy.cost import CallCost
from twoshift.policy.knee import knee_s
from twoshift.policy.lane_values import LaneLimits
from twoshift.types import CallSize

__all__ = ["Pace", "PacePolicy"]

_LEAST_CALL_S = 0.001  # of a background call: the host's own time a call stays small beside it
_MEMORY_S = 1.0  # over which live arrivals are counted
_DENSE = 0.1  # of the device's time for the overhead of live calls: from here on riders fill them to the knee
_LITTLE = 0.25  # of what a call costs by itself: riders that add no more are always worth it
_STRETCHED = 1.5  # times what riders add: a row waits for half of the stretched call before its own
_QUIET = 0.01  # live rows, decayed: after one, nobody has come for five seconds
_ALIKE = 0.03  # of the longer of two rows: the padding with which they share a call that pads
_EMPTY = CallSize(0, 0, 0, 0)


class Pace(NamedTuple):
    """Limits for background rows beside live rows; without a live endpoint there are none."""

    call_s: float = math.inf  # a call without live rows is complete once it takes this long
    ride_s: float = math.inf  # that riders may add to a call of live rows
    spare_s: float = math.inf  # that a live row may lose on the average to calls without live rows
    apart_s: float = 0.0  # that a live row loses beside such a call even where it need not wait for it
    lanes: int = 1

    def delay_s(self, call_s: float) -> float:
        """What a live row loses on the average that arrives while such calls run: the rest of the one that ends first.

        Of calls that follow each other a row meets half, of those in several lanes less. Where live calls overtake
        it is less, too: an upper bound.
        """
        return self.apart_s + call_s / (self.lanes + 1)

    def share(self, call_s: float) -> float:
        """Of the time that calls of this length may have: arrivals meet them as often as they run."""
        delay_s = self.delay_s(call_s)
        return 1.0 if delay_s <= self.spare_s else self.spare_s / delay_s


class PacePolicy:
    """Derives the limits from the cost curves and from the live rows of the last second; call `price` first."""

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._max_tokens = limits.max_tokens
        self._knees: dict[int, float] = {}  # tokens of a row -> seconds
        self._live_rows, self._live_at_s = 0.0, -math.inf  # decayed count of arrivals, as of then

    def price(self, background: CallCost, live: CallCost, whole: CallCost) -> None:
        """The cost curves have changed."""
        self._background, self._live, self._whole = background, live, whole
        self._fixed_s = background.seconds(_EMPTY)
        self._knees.clear()

    def cap_tokens(self, max_tokens: int) -> None:
        """Limit the tokens of all later calls."""
        self._max_tokens = max_tokens
        self._knees.clear()

    def launched(self, live_rows: int, now_s: float) -> None:
        """A call with live rows starts."""
        self._live_rows = self._decayed(now_s) + live_rows
        self._live_at_s = now_s

    def pace(self, row_tokens: int, now_s: float, live_tokens: float) -> Pace:
        """For background rows of `row_tokens` beside live rows of `live_tokens`; 0: none has been seen."""
        limits = self._limits
        if limits.slo_s is None:
            return Pace()
        call_s = self.call_s(row_tokens)
        dense, ride_s = 0.0, _LITTLE * self._fixed_s
        if not limits.pads or _are_alike(row_tokens, live_tokens):
            overhead = self._decayed(now_s) / _MEMORY_S * self._fixed_s / limits.lanes
            # Squared, because below that riders save the job little and delay live rows all the same.
            dense = min(1.0, (overhead / _DENSE) ** 2)
            ride_s = math.inf if limits.call_budget_s is not None else max(ride_s, dense * call_s)
        if limits.live_slowdown is None or not live_tokens:
            is_quiet = limits.background_depth > 0 and self._decayed(now_s) < _QUIET
            # Where live calls overtake, the first after a pause loses little to a call as long as the budget
            return Pace(limits.budget_s if is_quiet else call_s, ride_s)
        row = CallSize.uniform(1, round(live_tokens))
        alone_s, beside_s = self._whole.seconds(row), self._live.seconds(row)
        spare_s = (limits.live_slowdown - 1.0) * alone_s
        pace = Pace(call_s, min(ride_s, dense * spare_s / _STRETCHED), (1.0 - dense) * spare_s,
                    max(0.0, beside_s - alone_s), limits.lanes)  # fmt: skip
        return pace._replace(call_s=min(call_s, self._allowed_s(pace, row_tokens)))

    def call_s(self, row_tokens: int) -> float:
        """Length of a background call: the knee of the curve, or the user's setting."""
        limits = self._limits
        if limits.call_budget_s is not None or limits.slo_s is None:
            return limits.budget_s
        found = self._knees.get(row_tokens)
        if found is None:
            found = knee_s(self._background, limits.budget_s, limits.max_rows, self._max_tokens, row_tokens)
            found = self._knees[row_tokens] = min(limits.budget_s, max(_LEAST_CALL_S, found))
        return found

    def _allowed_s(self, pace: Pace, row_tokens: int) -> float:
        """The longest call that may follow the one before it at once; at least one that is not mostly overhead."""
        # Shorter ones with less pause between them, down to twice the overhead, harvest more at the same delay.
        least_s = max(self._background.seconds(CallSize.uniform(1, row_tokens)), 2 * self._fixed_s)
        return max(least_s, (pace.lanes + 1) * (pace.spare_s - pace.apart_s))

    def _decayed(self, now_s: float) -> float:
        return self._live_rows * math.exp(min(0.0, self._live_at_s - now_s) / _MEMORY_S) if self._live_rows else 0.0


def _are_alike(tokens: float, others: float) -> bool:
    """Whether rows of these lengths share a call that pads, and with it the overhead of one."""
    return abs(tokens - others) <= _ALIKE * max(tokens, others)
