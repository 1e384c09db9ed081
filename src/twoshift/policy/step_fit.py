"""The curve of a language model's steps from samples of each kind: those that decode, and those that read, too.

A step that decodes is fitted first. What a step that reads takes beyond decoding as many sequences is `reading` and so
much a token: one fit of all samples would follow the many that decode, and miss what reading costs by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.fit import Fit, fit_call_cost
from twoshift.types import CallSize

__all__ = ["fit_step_cost"]

_STALLED = 3.0  # times the curve: no residual of it
_KEPT_RATIOS = 65


def fit_step_cost(samples: Sequence[Sample]) -> Fit:
    """Raises InvalidInput on fewer than two sizes."""
    decoding = [each for each in samples if each.longest <= 1]
    reading = _medians([each for each in samples if each.longest > 1])
    if len({each.tokens for each in decoding}) < 2 or len(reading) < 2:
        return fit_call_cost(samples)
    decoded = fit_call_cost(decoding).cost
    extra_s, token_s = _read(decoded, reading)
    row_s = decoded.per_row_s + decoded.per_token_s
    cost = replace(
        decoded, per_token_s=token_s, per_row_s=max(0.0, row_s - token_s), reading_s=extra_s, ratios=(), ceilings=()
    )
    if row_s < token_s:  # a row cannot cost less than its token: what that adds to decoding is no overhead
        over_s = median((token_s - row_s) * each.rows for each in _medians(decoding))
        cost = replace(cost, overhead_s=max(0.0, cost.overhead_s - over_s))
    errors = [abs(math.log(each.seconds / cost.seconds(each.size))) for each in _medians(samples)]
    stalled = [each for each in samples if each.seconds > _STALLED * cost.seconds(each.size)]
    return Fit(_with_ratios(cost, samples), sum(errors) / len(errors), len(stalled), len(samples))


def _medians(samples: Sequence[Sample]) -> list[Sample]:
    """One of each size: sizes that were measured more often count no more."""
    by_size: dict[CallSize, list[Sample]] = {}
    for each in samples:
        by_size.setdefault(each.size, []).append(each)
    return [replace(each[0], seconds=median(s.seconds for s in each)) for each in by_size.values()]


def _read(decoded: CallCost, reading: Sequence[Sample]) -> tuple[float, float]:
    """Seconds that reading costs by itself and for a token, by relative least squares; neither is below zero."""
    rows = [
        (each.tokens - each.rows, each.seconds - decoded.seconds(CallSize.uniform(each.rows)), each.seconds**-2)
        for each in reading
    ]
    total = sum(w for _, _, w in rows)
    x_mean, y_mean = sum(w * x for x, _, w in rows) / total, sum(w * y for _, y, w in rows) / total
    across = sum(w * (x - x_mean) ** 2 for x, _, w in rows)
    slope = sum(w * (x - x_mean) * (y - y_mean) for x, y, w in rows) / across if across else 0.0
    if slope > 0 and y_mean - slope * x_mean >= 0:
        return y_mean - slope * x_mean, slope
    if slope <= 0:
        return max(0.0, y_mean), 0.0
    return 0.0, max(0.0, sum(w * x * y for x, y, w in rows) / sum(w * x * x for x, _, w in rows))


def _with_ratios(cost: CallCost, samples: Sequence[Sample]) -> CallCost:
    """Its residual, with the median at 1, without calls that stalled."""
    ratios = sorted(each.seconds / cost.seconds(each.size) for each in samples)
    kept = [each for each in ratios if each <= _STALLED] or [1.0]
    middle, count = kept[len(kept) // 2], min(_KEPT_RATIOS, len(kept))
    picked = [kept[round(at * (len(kept) - 1) / max(1, count - 1))] / middle for at in range(count)]
    return replace(cost, ratios=tuple(picked))
