"""The useful length of a call: a longer call hardly speeds up batch work, but delays live requests."""

from __future__ import annotations

import bisect

from twoshift.policy.cost import CallCost
from twoshift.types import CallSize

__all__ = ["KNEE_SHARE", "knee_s"]

KNEE_SHARE = 0.95  # of the best rows/s: what a call at the knee has
_FUZZ = 1e-9


def knee_s(cost: CallCost, longest_s: float, max_rows: int, max_tokens: int, row_tokens: int = 1) -> float:
    """Seconds of the shortest call with 95 % of the best rows/s that a call of at most `longest_s` has.

    In rows of `row_tokens`. The last one is cut where it reaches the knee: a call of whole rows is long enough once
    it takes this long. `longest_s` where not even one row fits.
    """

    def seconds(rows: int) -> float:
        return cost.seconds(CallSize.uniform(rows, row_tokens))

    def rate(rows: int) -> float:
        return rows / seconds(rows)

    caps = range(1, min(max_rows, max_tokens // row_tokens) + 1)
    most = bisect.bisect_right(caps, longest_s * (1 + _FUZZ), key=seconds)
    if not most:
        return longest_s
    # Between the ends of what was measured to be cheaper than the line, rows/s only rise as a call grows.
    measured = (min(c.rows, c.tokens // row_tokens, c.squares // row_tokens**2) for c in cost.ceilings)
    ends = sorted({most, *(end for end in measured if 0 < end < most)})
    target = KNEE_SHARE * max(map(rate, ends))
    start, end = next((start, end) for start, end in zip([0, *ends], ends, strict=False) if rate(end) >= target)
    rows = start + 1 + bisect.bisect_left(range(start + 1, end), target, key=rate)
    if rows == 1:
        return seconds(1)
    before_s, last_s = seconds(rows - 1), seconds(rows) - seconds(rows - 1)
    part = (target * before_s - (rows - 1)) / (1 - target * last_s)
    return before_s + last_s * min(1.0, max(0.0, part))
