"""`sim day`: a fleet over a day, with a batch backlog, against two fleets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, pretty, show, table
from twoshift.cli.params import JsonFlag, count, duration, share, text, usd, whole
from twoshift.cli.plan.curves import ProfileName
from twoshift.cli.progress import progress_bar
from twoshift.cli.sim.app import (
    CallBudgetMs,
    ItemMs,
    MaxBatch,
    OverheadMs,
    ReportFile,
    Seed,
    SloMs,
    SpotDiscount,
    TraceFile,
    app,
)
from twoshift.cli.sim.day_replay import replay_day
from twoshift.cli.sim.devices import chosen_device, read_trace
from twoshift.errors import InvalidInput
from twoshift.units import format_count

if TYPE_CHECKING:
    from twoshift.sim.day import DayResult, DaySpec

__all__ = ["day_command"]

_REPLAY = "Decide again from a server's log of scaling decisions, and show which decisions differ."
_OF_REPLAY = ("replay", "min_replicas", "max_replicas", "cooldown")


@command(
    app,
    "day",
    "twoshift sim day --peak 20000 --batch-items 400M --price 2.50",
    {"cooldown_s": "cooldown"},
)
def day_command(
    context: typer.Context,
    overhead_ms: OverheadMs = None,
    item_ms: ItemMs = None,
    max_batch: MaxBatch = 32,
    slo_ms: SloMs = 50.0,
    peak: Annotated[float, count("Live rows per second in the busiest hour, without --trace.")] = 20_000.0,
    trough: Annotated[float, share("Load in the quietest hour, as a share of the peak.", zero=False)] = 0.2,
    batch_items: Annotated[float, count("Number of batch rows to process within the day.", zero=True)] = 4e8,
    price: Annotated[float, usd("Price of one device in dollars per hour.")] = 2.50,
    spot_discount: SpotDiscount = 0.0,
    start: Annotated[float, duration("Time until a new replica is ready.", zero=True, shown="60s")] = 60.0,
    max_devices: Annotated[int, whole("Maximum number of replicas, and of batch workers.", most=1_000_000)] = 10_000,
    call_budget_ms: CallBudgetMs = None,
    profile: ProfileName = None,
    trace: TraceFile = None,
    copies: Annotated[
        int, whole("Number of copies of the trace, each shifted in time, to simulate a larger service.", most=10_000)
    ] = 1,
    seed: Seed = 1,
    replay: Annotated[str | None, text(_REPLAY, metavar="FILE")] = None,
    min_replicas: Annotated[int | None, whole("With --replay: override the recorded value.", most=1_000_000)] = None,
    max_replicas: Annotated[int | None, whole("With --replay: override the recorded value.", most=1_000_000)] = None,
    cooldown: Annotated[float | None, duration("With --replay: override the recorded value.", zero=True)] = None,
    report: ReportFile = None,
    as_json: JsonFlag = False,
) -> int:
    """Simulate an autoscaled fleet over a day of traffic, with batch rows in its idle time.

    The result is compared with two separate fleets for the same work: an online fleet with the same autoscaler, and
    batch workers that are paid only while they work. With --replay no traffic is simulated: the policy decides again
    on what a server's autoscaler observed, and the exit code is 1 if a decision differs.
    """
    _check_replay(context, replay)
    if replay is not None:
        given = {"min_replicas": min_replicas, "max_replicas": max_replicas, "cooldown_s": cooldown}
        return replay_day(replay, {name: value for name, value in given.items() if value is not None}, as_json)
    from twoshift.sim.day import DaySpec, simulate_day
    from twoshift.sim.lanes import LanesSpec

    check_writable(report, "--report", others=[trace])
    arrivals = read_trace(trace)
    cost, row_tokens = chosen_device(overhead_ms, item_ms, profile, arrivals)
    budget_s = None if call_budget_ms is None else call_budget_ms / 1e3
    lanes = LanesSpec(
        cost,
        max_batch,
        slo_ms / 1e3,
        load=1.0,
        call_budget_s=budget_s,
        seed=seed,
        row_tokens=row_tokens,
        trace=arrivals,
    )
    spec = DaySpec(
        lanes, peak, trough, batch_items, price, spot_discount, start, max_devices, trace=arrivals, copies=copies
    )
    with progress_bar("Simulating a day") as progress:
        result = simulate_day(spec, progress)
    if report:
        from twoshift.cli.sim.day_report import day_report

        write_text(report, day_report(spec, result), "--report")
        note(f"Report: {report}")
    show(as_json, day_data(spec, result), _table(result), day_words(spec, result))
    return 0


def _check_replay(context: typer.Context, replay: str | None) -> None:
    """Either kind of day has options that mean nothing to the other; raises InvalidInput."""
    names = [name for name in context.params if name not in (*_OF_REPLAY, "as_json")]
    for name in names if replay is not None else _OF_REPLAY[1:]:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            accepted = "no --replay: this option simulates a day" if replay is not None else "--replay FILE as well"
            raise InvalidInput(name, context.params[name], accepted)


def day_data(spec: DaySpec, result: DayResult) -> dict[str, Any]:
    """The JSON form, without the ticks."""
    ours, alone = result.together, result.online_alone
    return {
        "p50_ms": ours.p50_ms,
        "p99_ms": ours.p99_ms,
        "in_slo": ours.in_slo,
        "device_hours": {
            "live": ours.live_hours,
            "harvested": ours.harvested_hours,
            "dedicated": ours.dedicated_hours,
            "idle": ours.idle_hours,
        },
        "usd": ours.usd,
        "batch": {
            "items": spec.batch_items,
            "done": ours.batch_done,
            "finished_hour": ours.batch_finished_hour,
        },
        "two_fleets": {
            "p99_ms": alone.p99_ms,
            "in_slo": alone.in_slo,
            "online_hours": alone.live_hours + alone.idle_hours,
            "online_usd": alone.usd,
            "batch_hours": result.batch_alone_hours,
            "batch_usd": result.batch_alone_usd,
            "usd": result.separate_usd,
            "usd_peak_sized": result.static_usd,
        },
        "saved_share": result.saved_share,
        "decisions": [{"hour": tick.hour, "decision": tick.decision} for tick in ours.ticks if tick.decision],
    }


def _table(result: DayResult) -> Any:
    ours, alone = result.together, result.online_alone
    columns = ["<fleet", "p99 ms", "in SLO", "live h", "harvest h", "batch h", "idle h", "usd"]
    return table(
        columns,
        [
            [
                "one",
                pretty(ours.p99_ms),
                f"{ours.in_slo:.2%}",
                pretty(ours.live_hours),
                pretty(ours.harvested_hours),
                pretty(ours.dedicated_hours),
                pretty(ours.idle_hours),
                f"{ours.usd:,.2f}",
            ],
            [
                "two",
                pretty(alone.p99_ms),
                f"{alone.in_slo:.2%}",
                pretty(alone.live_hours),
                "-",
                pretty(result.batch_alone_hours),
                pretty(alone.idle_hours),
                f"{result.separate_usd:,.2f}",
            ],
        ],
        title="Device-hours and dollars",
    )


def day_words(spec: DaySpec, result: DayResult) -> str:
    """What the table says."""
    ours, saved = result.together, result.saved_share
    saving = f"{saved:.0%} less than" if saved >= 0 else f"{-saved:.0%} more than"
    lines = [
        f"One fleet costs ${ours.usd:,.2f}: {saving} two fleets with the same autoscaler "
        f"(${result.separate_usd:,.2f}); two fleets, the online one sized for its peak, cost "
        f"${result.static_usd:,.2f}.",
        "Live h: device hours for live rows; harvest h: batch rows in the idle time of live replicas; batch h: "
        "dedicated batch workers. p99 covers answered rows; the others were refused immediately.",
    ]
    lost = result.online_alone.in_slo - ours.in_slo
    if lost > 0.005:
        lines.append(
            f"Batch work costs live requests {lost:.1%} of their answers inside the SLO: bursts arrive while the "
            "device runs a background call. A smaller --call-budget-ms avoids this."
        )
    if spec.batch_items:
        share_done = ours.batch_done / spec.batch_items
        when = "" if ours.batch_finished_hour is None else f" after {ours.batch_finished_hour:.1f} h"
        more = "" if share_done >= 1 else " The rest needs more --max-devices or a longer day."
        lines.append(f"Batch: {format_count(ours.batch_done)} rows ({share_done:.0%}){when}.{more}")
    return "\n".join(lines)
