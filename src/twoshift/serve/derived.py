"""What follows from a model's curve and its objective."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits, longest_live_s
from twoshift.policy.pace import PacePolicy
from twoshift.policy.plan.row import RowSize
from twoshift.policy.plan.table import cap, largest_batch
from twoshift.policy.threads import ThreadPlan

__all__ = ["Derived", "derive"]

_QUANTILE = 0.9  # as the lane policy predicts
_FUZZ = 1e-9
_ANY_SLOWDOWN = 1e9  # where none is set


@dataclass(frozen=True, slots=True)
class Derived:
    """Shown to people, and by GET /v1/derived/{model}."""

    slo_s: float
    one_row_s: float  # a call of one typical row that has the device to itself: the median
    call_budget_s: float  # the longest call that may carry background rows
    largest_live_rows: int  # of typical rows, in one call that leaves time for another before it
    largest_background_rows: int  # of typical rows, in a call of background_call_s
    admission_rows: int  # typical rows that may wait and still be answered in time
    capacity_rows_per_s: float  # of typical rows, in the largest live calls
    row_tokens: float  # of a typical row: of live requests lately, of the profile before the first
    keeps_slo: bool = True  # False: one typical row takes longer, on an idle device
    least_slo_s: float = 0.0  # an SLO that leaves time for a call that runs already
    background_call_s: float = 0.0  # a call of background rows: as long as the curve's knee needs; 0: none fits
    background_share: float = 1.0  # of the time that such calls may have, where live_slowdown spaces them
    # The mean time of a live row on the device beside a job over that without, as predicted: at most
    live_slowdown: float = 1.0
    host_s: float = 0.0  # of the interpreter, that a request takes; 0: not measured yet
    threads: str | None = None  # that a call uses, by its rows; None where that is the library's to say
    curves: dict[str, Any] = field(default_factory=dict[str, Any])  # as learned, with the limits: what sim lanes takes

    @property
    def timeout_s(self) -> float:
        """Of a request that brings none: a late answer is better than none where no answer could be in time."""
        return self.slo_s if self.keeps_slo else self.least_slo_s

    @property
    def warning(self) -> str:
        """What it cannot keep, and what it could; empty where all is well."""
        if self.keeps_slo:
            return ""
        takes, slo, least = (f"{1e3 * each:.3g}" for each in (self.one_row_s, self.slo_s, self.least_slo_s))
        return (
            f"the model cannot meet the SLO of {slo} ms, because one row takes {takes} ms; "
            f"try --slo-ms {least} (slo_ms = {least} in a configuration file). "
            f"Until then, the default timeout of a request is {least} ms"
        )

    def with_host(self, request_s: float, rows_per_request: float) -> Derived:
        """As far as the host keeps up, where a request takes so much of it."""
        if request_s <= 0:
            return self
        capacity_rows_per_s = min(self.capacity_rows_per_s, rows_per_request / request_s)
        return replace(self, host_s=request_s, capacity_rows_per_s=capacity_rows_per_s)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def derive(
    cost: CallCost,
    limits: LaneLimits,
    row: RowSize,
    max_waiting: int,
    whole: CallCost | None = None,
    threads: ThreadPlan | None = None,
) -> Derived:
    """Everything that a user might otherwise have had to set.

    `whole` is the curve of a call that has the device to itself, where `cost` is that of one in a lane.
    """
    assert limits.slo_s is not None  # noqa: S101 - a server has an objective
    budget_s, beside = limits.budget_s, _beside_a_job(cost, limits, row, whole or cost)
    share = longest_live_s(cost.at(_QUANTILE), limits) / limits.slo_s
    live = max(1, min(limits.max_rows, cap(cost, limits.slo_s, share, row, _QUANTILE).batch))
    live_s = cost.seconds(row.call(live), _QUANTILE)
    alone_s = (whole or cost).seconds(row.call(1), _QUANTILE)
    one_row_s = (whole or cost).seconds(row.call(1))
    return Derived(
        slo_s=limits.slo_s,
        one_row_s=one_row_s,
        call_budget_s=budget_s,
        largest_live_rows=live,
        largest_background_rows=beside.rows,
        admission_rows=min(
            max_waiting, int(limits.lanes * live * max(1.0, (limits.slo_s - limits.outside_s) // live_s))
        ),
        capacity_rows_per_s=limits.lanes * live / cost.seconds(row.call(live)),  # calls in a row are not all slow
        row_tokens=row.tokens,
        keeps_slo=limits.outside_s + alone_s <= limits.slo_s,
        least_slo_s=_rounded_up(limits.outside_s + 2 * alone_s),
        background_call_s=beside.call_s,
        background_share=beside.share,
        live_slowdown=beside.live_slowdown,
        threads=None if threads is None else str(threads),
        curves={"whole": (whole or cost).to_dict(), "lane": cost.to_dict(), "limits": asdict(limits)},
    )


class _BesideAJob(NamedTuple):
    """A background call of typical rows, and what such calls cost live callers."""

    rows: int = 0
    call_s: float = 0.0
    share: float = 1.0
    live_slowdown: float = 1.0


def _beside_a_job(cost: CallCost, limits: LaneLimits, row: RowSize, whole: CallCost) -> _BesideAJob:
    tokens, in_lane, alone = max(1, round(row.tokens)), cost.at(_QUANTILE), whole.at(_QUANTILE)
    unbounded = replace(limits, live_slowdown=limits.live_slowdown or _ANY_SLOWDOWN)
    policy = PacePolicy(unbounded)
    policy.price(in_lane, alone if limits.background_depth else in_lane, alone)
    pace = policy.pace(tokens, 0.0, tokens)
    rows = min(limits.max_rows, largest_batch(in_lane, pace.call_s, row))
    stops_short = rows < limits.max_rows and in_lane.seconds(row.call(rows)) < pace.call_s * (1 - _FUZZ)
    if stops_short and in_lane.seconds(row.call(rows + 1)) <= limits.budget_s:
        rows += 1  # the row that reaches it
    call_s = in_lane.seconds(row.call(rows))
    if not rows:  # too long for a lane: it has the whole device
        rows, call_s, pace = 1, alone.seconds(row.call(1)), pace._replace(lanes=1, apart_s=0.0)
        if call_s > limits.budget_s:
            return _BesideAJob()
    share = pace.share(call_s)
    if not share:
        return _BesideAJob(share=0.0)
    delay_s = share * pace.delay_s(call_s)
    if limits.live_slowdown is None and not limits.background_depth and not limits.pads:
        delay_s += call_s - alone.seconds(row.call(1))  # where many live rows come, background rows fill their calls
    return _BesideAJob(rows, call_s, share, 1.0 + delay_s / alone.seconds(row.call(1)))


def _rounded_up(seconds: float) -> float:
    """To a number that a person would choose: one digit and a half."""
    step_ms = 10.0 ** math.floor(math.log10(1e3 * seconds)) / 2
    return math.ceil(1e3 * seconds / step_ms) * step_ms / 1e3
