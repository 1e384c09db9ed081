"""What follows from a model's curve and its objective."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits, longest_live_s
from twoshift.policy.plan.row import RowSize
from twoshift.policy.plan.table import cap
from twoshift.types import CallSize

__all__ = ["Derived", "check_objective", "derive"]

_QUANTILE = 0.9  # as the lane policy predicts


@dataclass(frozen=True, slots=True)
class Derived:
    """Shown to people, and by GET /v1/derived/{model}."""

    slo_s: float
    one_row_s: float  # a call of one typical row, in a lane where there are several
    call_budget_s: float  # the longest call that carries background rows
    largest_live_rows: int  # of typical rows, in one call that leaves time for another before it
    largest_background_rows: int
    admission_rows: int  # typical rows that may wait and still be answered in time
    capacity_rows_per_s: float  # of typical rows, in the largest live calls
    row_tokens: float  # of a typical row

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def check_objective(cost: CallCost, limits: LaneLimits) -> None:
    """Raises InvalidInput where not even the shortest row could be answered in time."""
    assert limits.slo_s is not None  # noqa: S101 - a server has an objective
    least_s = limits.outside_s + cost.seconds(CallSize.uniform(1), _QUANTILE)
    if least_s > limits.slo_s:
        accepted = f"at least {1e3 * least_s:.3g}: the shortest row takes so long on this device"
        raise InvalidInput("slo_ms", f"{1e3 * limits.slo_s:g}", accepted)


def derive(cost: CallCost, limits: LaneLimits, row: RowSize, max_waiting: int) -> Derived:
    """Everything that a user might otherwise have had to set."""
    assert limits.slo_s is not None  # noqa: S101 - a server has an objective
    budget_s = limits.budget_s
    share = longest_live_s(cost.at(_QUANTILE), limits) / limits.slo_s
    live = max(1, min(limits.max_rows, cap(cost, limits.slo_s, share, row, _QUANTILE).batch))
    background = min(limits.max_rows, cap(cost, limits.slo_s, budget_s / limits.slo_s, row, _QUANTILE).batch)
    live_s = cost.seconds(row.call(live), _QUANTILE)
    return Derived(
        slo_s=limits.slo_s,
        one_row_s=cost.seconds(row.call(1), _QUANTILE),
        call_budget_s=budget_s,
        largest_live_rows=live,
        largest_background_rows=background,
        admission_rows=min(
            max_waiting, int(limits.lanes * live * max(1.0, (limits.slo_s - limits.outside_s) // live_s))
        ),
        capacity_rows_per_s=limits.lanes * live / live_s,
        row_tokens=row.tokens,
    )
