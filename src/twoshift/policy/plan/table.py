"""Cost per item at each batch size, the size where doubling stops paying, and the largest acceptable call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.plan.row import Curve, RowSize

__all__ = [
    "BATCH_LIMIT",
    "SWEEP_BATCHES",
    "Cap",
    "CostRow",
    "CostTable",
    "Sweep",
    "cap",
    "cost_table",
    "doublings",
    "knee",
    "largest_batch",
    "sweep",
]

SWEEP_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KNEE_SAVING = 0.05  # doubling that saves less than this is not worth its latency
BATCH_LIMIT = 2**40  # past any device's memory
_ENDLESS = 2**60  # where the curve's asymptote is read
_FUZZ = 1e-9  # a budget of 40 ms admits a sum that floats make 40.000000000000001 ms
_ONE_TOKEN = RowSize()


@dataclass(frozen=True, slots=True)
class CostRow:
    """One batch size at one price."""

    batch: int
    call_s: float
    item_s: float
    items_per_hour: float
    price_usd_per_hour: float
    usd_per_million: float
    within_slo: bool | None  # None: no objective was given


@dataclass(frozen=True, slots=True)
class CostTable:
    """Rows in the requested order; the gains compare the last row with the first."""

    rows: tuple[CostRow, ...]
    throughput_gain: float
    cost_gain: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows by increasing batch size, and the size above which doubling saves less than 5 %."""

    rows: tuple[CostRow, ...]
    knee: int | None
    knee_within_slo: bool | None


@dataclass(frozen=True, slots=True)
class Cap:
    """The largest background call that a live request can wait for."""

    batch: int  # 0: not even one item fits the budget
    call_s: float  # of that batch; of a single item where none fits
    budget_s: float
    efficiency: float  # throughput at the cap over that of endless calls


def cost_table(
    curve: Curve,
    batches: Sequence[int],
    prices_usd_per_hour: Sequence[float],
    slo_s: float | None = None,
    row: RowSize = _ONE_TOKEN,
) -> CostTable:
    """Cost at each batch size, with one price for all sizes or one per size."""
    if not batches:
        raise InvalidInput("batch", list(batches), "at least one batch size")
    if len(prices_usd_per_hour) not in (1, len(batches)):
        shown = list(prices_usd_per_hour)
        raise InvalidInput("price", shown, f"one price, or one for each of the {len(batches)} batch sizes")
    prices = list(prices_usd_per_hour) * (len(batches) if len(prices_usd_per_hour) == 1 else 1)
    rows = tuple(_row(curve, b, p, slo_s, row) for b, p in zip(batches, prices, strict=True))
    first, last = rows[0], rows[-1]
    return CostTable(rows, first.item_s / last.item_s, _ratio(first.usd_per_million, last.usd_per_million))


def sweep(
    curve: Curve,
    batches: Sequence[int] = SWEEP_BATCHES,
    price_usd_per_hour: float = 1.0,
    slo_s: float | None = None,
    row: RowSize = _ONE_TOKEN,
) -> Sweep:
    """The cost table over many sizes, with its knee."""
    sizes = sorted(set(batches))
    table = cost_table(curve, sizes, [price_usd_per_hour], slo_s, row)
    at = knee(curve, sizes, row)
    fits = {r.batch: r.within_slo for r in table.rows}
    return Sweep(table.rows, at, None if at is None else fits[at])


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4 ... up to this number."""
    return tuple(2**k for k in range(max(1, most).bit_length()))


def knee(curve: Curve, batches: Sequence[int], row: RowSize = _ONE_TOKEN) -> int | None:
    """The smallest of these sizes from which on none is worth doubling; None where the largest still is."""
    found = None
    for batch in sorted(batches, reverse=True):
        now_s = curve.seconds(row.call(batch)) / batch
        doubled_s = curve.seconds(row.call(2 * batch)) / (2 * batch)
        if doubled_s <= (1 - KNEE_SAVING) * now_s:
            break
        found = batch
    return found


def largest_batch(curve: Curve, budget_s: float, row: RowSize = _ONE_TOKEN, quantile: float = 0.5) -> int:
    """The most rows whose call takes at most `budget_s`; 0 where one is too many, at most BATCH_LIMIT."""
    limit_s = budget_s * (1 + _FUZZ)

    def fits(batch: int) -> bool:
        return curve.seconds(row.call(batch), quantile) <= limit_s

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= BATCH_LIMIT and fits(high):
        low, high = high, high * 2
    if high > BATCH_LIMIT:
        return BATCH_LIMIT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cap(curve: Curve, slo_s: float, share: float, row: RowSize = _ONE_TOKEN, quantile: float = 0.5) -> Cap:
    """The largest background batch that keeps a live request's wait within `share` of its SLO."""
    if not (math.isfinite(slo_s) and slo_s > 0):
        raise InvalidInput("slo_s", slo_s, "a finite number of seconds above 0")
    if not 0 < share <= 1:
        raise InvalidInput("share", share, "a share above 0 and at most 1")
    budget_s = slo_s * share
    batch = largest_batch(curve, budget_s, row, quantile)
    call_s = curve.seconds(row.call(max(1, batch)), quantile)
    endless_s = curve.seconds(row.call(_ENDLESS), quantile) / _ENDLESS
    return Cap(batch, call_s, budget_s, endless_s * batch / call_s)


def _row(curve: Curve, batch: int, price: float, slo_s: float | None, row: RowSize) -> CostRow:
    if batch < 1:
        raise InvalidInput("batch", batch, "a whole number of at least 1")
    call_s = curve.seconds(row.call(batch))
    item_s = call_s / batch
    within = None if slo_s is None else call_s <= slo_s * (1 + _FUZZ)
    return CostRow(batch, call_s, item_s, 3600 / item_s, price, 1e6 * item_s * price / 3600, within)


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.inf
