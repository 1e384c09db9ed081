"""All results for one workload on one device: dollars, knee, largest batch call, memory, roofline and levers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.plan.memory import PRECISION_BYTES, KvShape, MemoryPlan, plan_memory
from twoshift.policy.plan.roofline import Device, Roofline, call_work, plan_roofline
from twoshift.policy.plan.row import Curve, RowSize
from twoshift.policy.plan.table import Cap, CostRow, Sweep, cap, cost_table, doublings, sweep
from twoshift.policy.plan.tokens import (
    QUANTISATION_SPEEDUP,
    Lever,
    TokensPlan,
    batch_lever,
    padding_lever,
    plan_tokens,
    quantisation_lever,
)

__all__ = ["LARGEST_BATCH", "Hardware", "Overview", "OverviewAsk", "plan_overview"]

LARGEST_BATCH = 4096  # that the curves are drawn to
_WIDE = ("fp32", "bf16", "fp16")  # precisions that a quantised model is quicker than


@dataclass(frozen=True, slots=True)
class OverviewAsk:
    """The workload; the cost curve says what a call costs."""

    batch: int
    price_usd_per_hour: float
    slo_s: float
    utilisation: float = 1.0  # share of the paid time in which the device is busy
    spot_discount: float = 0.0
    padding: float = 0.0  # share of what the device computes
    row_tokens: float = 1.0  # without padding
    share: float = 0.5  # of the objective that a live request may wait for a background call

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= LARGEST_BATCH:
            raise InvalidInput("batch", self.batch, f"a whole number from 1 to {LARGEST_BATCH:,}")
        for name in ("padding", "spot_discount"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "a share of at least 0 and less than 1")
        if not 0 < self.utilisation <= 1:
            raise InvalidInput("utilisation", self.utilisation, "a share above 0 and at most 1")
        if not (math.isfinite(self.row_tokens) and self.row_tokens >= 1):
            raise InvalidInput("row_tokens", self.row_tokens, "a number of at least 1")

    @property
    def busy_usd_per_hour(self) -> float:
        """What an hour of work costs: the idle time is paid, too."""
        return self.price_usd_per_hour * (1 - self.spot_discount) / self.utilisation


@dataclass(frozen=True, slots=True)
class Hardware:
    """A model on a device, if both are known."""

    device: Device
    params: float
    precision: str = "bf16"
    kv: KvShape | None = None
    sequence_tokens: float = 2048.0


@dataclass(frozen=True, slots=True)
class Overview:
    """All results together."""

    chosen: CostRow  # at the batch that was asked for
    items_per_s: float  # while the device is busy
    tokens_per_s: float  # without padding
    usd_per_million_tokens: float
    sweep: Sweep
    cap: Cap
    tokens: TokensPlan  # with what each lever would save
    memory: MemoryPlan | None
    roofline: Roofline | None  # of the call that was asked for


def plan_overview(ask: OverviewAsk, curve: Curve, row: RowSize, on: Hardware | None = None) -> Overview:
    """`row` is without padding, in the curve's own tokens."""
    padded = row.scaled_to(row.tokens / (1 - ask.padding))
    sizes = sorted({*doublings(LARGEST_BATCH), ask.batch})
    table = cost_table(curve, [ask.batch], [ask.busy_usd_per_hour], ask.slo_s, padded)
    swept = sweep(curve, sizes, ask.busy_usd_per_hour, ask.slo_s, padded)
    items_per_s = 1 / table.rows[0].item_s
    levers = [*_levers(ask, curve, padded, swept.knee, on)]
    price = ask.price_usd_per_hour * (1 - ask.spot_discount)
    tokens = plan_tokens(items_per_s * ask.row_tokens, price, ask.utilisation, levers)
    return Overview(
        table.rows[0],
        items_per_s,
        items_per_s * ask.row_tokens,
        tokens.usd_per_million_tokens,
        swept,
        cap(curve, ask.slo_s, ask.share, padded),
        tokens,
        None if on is None else _memory(on),
        None if on is None else _roofline(on, ask.batch * ask.row_tokens / (1 - ask.padding)),
    )


def _levers(ask: OverviewAsk, curve: Curve, row: RowSize, knee: int | None, on: Hardware | None) -> Iterator[Lever]:
    if knee is not None and ask.batch < knee:
        yield batch_lever(curve, ask.batch, knee, row)
    if ask.padding:
        yield padding_lever(ask.padding)
    if on is None or on.precision in _WIDE:
        yield quantisation_lever(max(QUANTISATION_SPEEDUP, key=lambda name: QUANTISATION_SPEEDUP[name]))


def _memory(on: Hardware) -> MemoryPlan:
    weight_bytes = PRECISION_BYTES[on.precision]
    return plan_memory(on.params, weight_bytes, on.kv, on.sequence_tokens, on.device.memory_bytes)


def _roofline(on: Hardware, tokens: float) -> Roofline:
    return plan_roofline(on.device, *call_work(on.params, PRECISION_BYTES[on.precision], tokens), on.precision)
