"""`plan cost`, `plan sweep`, `plan cap`: what batch size does to cost and to waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from twoshift.cli.commands import command
from twoshift.cli.output import console, pretty, show, table, unicode_ok
from twoshift.cli.params import JsonFlag, millis, share, usd, whole
from twoshift.cli.plan.app import app
from twoshift.cli.plan.curves import CurveSource, ItemMs, OverheadMs, ProfileName, RowTokens, chosen_curve
from twoshift.policy.plan.row import Curve
from twoshift.policy.plan.table import (
    BATCH_LIMIT,
    SWEEP_BATCHES,
    Cap,
    CostRow,
    Sweep,
    cap,
    cost_table,
    sweep,
)

if TYPE_CHECKING:
    from rich.text import Text

    from twoshift.cli.tables import FittingTable

__all__ = ["cap_command", "cost_command", "sweep_command"]

SloMs = Annotated[float | None, millis("Latency objective of a live request, in milliseconds.")]


@command(
    app,
    "cost",
    """
    twoshift plan cost --overhead-ms 6 --item-ms 0.18 \\
        --batch 1 --batch 512 --price 3.00 --price 0.90 --slo-ms 50
    """,
)
def cost_command(
    batch: Annotated[list[int], whole("Batch size: items per call; repeat the option to compare several sizes.")],
    overhead_ms: OverheadMs = None,
    item_ms: ItemMs = None,
    price: Annotated[list[float], usd("Device price in dollars per hour: one price, or one for each --batch.")] = [1.0],  # noqa: B006
    slo_ms: SloMs = None,
    profile: ProfileName = None,
    row_tokens: RowTokens = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare batch sizes by call time, throughput and dollars per item."""
    source = chosen_curve(overhead_ms, item_ms, profile, row_tokens)
    made = cost_table(source.cost, batch, price, None if slo_ms is None else slo_ms / 1e3, source.row)
    data = {
        "rows": [_row_fields(r) for r in made.rows],
        "throughput_gain": made.throughput_gain,
        "cost_gain": made.cost_gain,
    }
    words = ""
    if len(made.rows) > 1:
        words = (
            f"A batch of {made.rows[-1].batch:,} items has {made.throughput_gain:.1f}x the throughput of a batch of "
            f"{made.rows[0].batch:,}, and is {made.cost_gain:.1f}x cheaper per item."
        )
    show(as_json, data, source.name, _rows_table(made.rows), words)


@command(app, "sweep", "twoshift plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50")
def sweep_command(
    overhead_ms: OverheadMs = None,
    item_ms: ItemMs = None,
    slo_ms: SloMs = None,
    batch: Annotated[
        list[int] | None,
        whole("Batch size: items per call; repeat the option for several sizes.", shown="1, 2, 4 ... 512"),
    ] = None,
    price: Annotated[float, usd("Device price in dollars per hour.")] = 1.0,
    profile: ProfileName = None,
    row_tokens: RowTokens = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare batch sizes: find the size above which doubling saves little, and whether that size fits the SLO."""
    source = chosen_curve(overhead_ms, item_ms, profile, row_tokens)
    slo_s = None if slo_ms is None else slo_ms / 1e3
    made = sweep(source.cost, batch or SWEEP_BATCHES, price, slo_s, source.row)
    words = sweep_words(made, slo_ms)
    data = {
        "rows": [_row_fields(r) for r in made.rows],
        "knee": made.knee,
        "knee_within_slo": made.knee_within_slo,
        "words": words,
    }
    if as_json:
        show(True, data)
        return
    show(False, data, source.name, _rows_table(made.rows, made.knee), _chart(made, source, slo_ms), "", words)


@command(app, "cap", "twoshift plan cap --overhead-ms 6 --item-ms 0.2 --slo-ms 100 --share 0.4")
def cap_command(
    slo_ms: Annotated[float, millis("Latency objective of a live request, in milliseconds.")],
    overhead_ms: OverheadMs = None,
    item_ms: ItemMs = None,
    share: Annotated[
        float, share("Largest share of the SLO that a live request may wait for a background call.", zero=False)
    ] = 0.5,
    quantile: Annotated[float, share("With --profile: use this quantile of the call time.")] = 0.9,
    profile: ProfileName = None,
    row_tokens: RowTokens = None,
    as_json: JsonFlag = False,
) -> None:
    """Find the largest batch of background rows that delays a live request by at most a given share of the SLO."""
    source = chosen_curve(overhead_ms, item_ms, profile, row_tokens)
    made = cap(source.cost, slo_ms / 1e3, share, source.row, quantile)
    how = f" Computed with the {quantile:.0%} quantile of the call times in the profile." if profile else ""
    words = cap_words(made) + how
    data = {
        "batch": made.batch,
        "call_ms": made.call_s * 1e3,
        "budget_ms": made.budget_s * 1e3,
        "efficiency": made.efficiency,
        "words": words,
    }
    row = [pretty(made.batch), pretty(made.call_s * 1e3), pretty(made.budget_s * 1e3), f"{made.efficiency:.1%}"]
    show(as_json, data, source.name, table(["batch", "call ms", "budget ms", "share of best throughput"], [row]), words)


def sweep_words(made: Sweep, slo_ms: float | None) -> str:
    """Whether the knee fits the objective, and why online refuses it where it does not."""
    fitting = [row.batch for row in made.rows if row.within_slo]
    if slo_ms is not None and not fitting:
        return f"No size in this list fits the SLO of {pretty(slo_ms)} ms: not even a batch of {made.rows[0].batch:,}."
    if made.knee is None:
        return (
            "No knee in these batch sizes: doubling still saves at least 5 % of the cost per item. Try larger batches."
        )
    start = f"Knee: {made.knee:,} items per call. Doubling the batch saves less than 5 % of the cost per item."
    call_ms = next(r.call_s * 1e3 for r in made.rows if r.batch == made.knee)
    if slo_ms is None:
        return f"{start} A call of that size takes {pretty(call_ms)} ms (set --slo-ms to compare it with an SLO)."
    if made.knee_within_slo:
        return f"{start} A call of that size takes {pretty(call_ms)} ms, inside the SLO of {pretty(slo_ms)} ms."
    return (
        f"{start} This is too large for online serving: one call of that size takes {pretty(call_ms)} ms, more than "
        f"the SLO of {pretty(slo_ms)} ms, and a live request waits for the whole call. Filling such a batch would also "
        "mean waiting for more requests. Use this size for batch jobs; the largest batch in this list that fits the "
        f"SLO is {fitting[-1]:,}."
    )


def cap_words(made: Cap) -> str:
    """What the cap bounds, and what preemption between calls changes."""
    if made.batch == 0:
        fit = f"No background call fits: one item takes {pretty(made.call_s * 1e3)} ms; the budget is {_budget(made)}."
    elif made.batch >= BATCH_LIMIT:
        fit = (
            f"Any batch fits the {_budget(made)} budget: on this curve, the call time hardly grows with the "
            "number of items."
        )
    else:
        fit = f"A call of {made.batch:,} items takes {pretty(made.call_s * 1e3)} ms; the budget is {_budget(made)}."
    return (
        f"{fit} If live requests can run between two background calls, this limit applies to each call, and the "
        "job may have any number of calls. If not, the limit applies to all background work at once."
    )


def _budget(made: Cap) -> str:
    return f"{pretty(made.budget_s * 1e3)} ms"


def _row_fields(row: CostRow) -> dict[str, object]:
    return {
        "batch": row.batch,
        "item_ms": row.item_s * 1e3,
        "items_per_hour": row.items_per_hour,
        "usd_per_million": row.usd_per_million,
        "call_ms": row.call_s * 1e3,
        "within_slo": row.within_slo,
        "price_usd_per_hour": row.price_usd_per_hour,
    }


def _rows_table(rows: Sequence[CostRow], knee: int | None = None) -> FittingTable:
    columns = ["batch", "ms per item", "items/h", "$/h", "$/million items", "ms per call", "<in SLO"]
    fits = {True: "yes", False: "no", None: "-"}
    cells = [
        [
            pretty(r.batch),
            pretty(r.item_s * 1e3),
            pretty(r.items_per_hour),
            f"{r.price_usd_per_hour:.2f}",
            pretty(r.usd_per_million, 3),
            pretty(r.call_s * 1e3),
            fits[r.within_slo] + ("  <- knee" if r.batch == knee else ""),
        ]
        for r in rows
    ]
    return table(columns, cells)


def _chart(made: Sweep, source: CurveSource[Curve], slo_ms: float | None) -> Text:
    from twoshift.cli.chart import LogChart, Series

    def call_ms(batch: int) -> float:
        return source.cost.seconds(source.row.call(batch)) * 1e3

    unicode = unicode_ok()
    return LogChart(
        xs=[r.batch for r in made.rows],
        series=[
            Series("ms per call", "○", "cyan", call_ms),
            Series("ms per item", "●", "green", lambda batch: call_ms(batch) / batch),
        ],
        level=None if slo_ms is None else (f"SLO {pretty(slo_ms)} ms", slo_ms),
        at=None if made.knee is None else (f"knee {made.knee:,}", made.knee),
        width=min(100, console().width),
        unicode=unicode,
    ).render()
