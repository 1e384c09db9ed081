"""`sim day`: a fleet over a day, with a batch backlog, against two fleets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, pretty, show, table
from twoshift.cli.params import JsonFlag, given_of, with_settings
from twoshift.cli.progress import progress_bar
from twoshift.cli.sim.app import app
from twoshift.cli.sim.day_replay import replay_day
from twoshift.cli.sim.devices import chosen_device, read_trace
from twoshift.cli.sim.settings import DaySettings
from twoshift.errors import Inapplicable
from twoshift.units import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twoshift.sim.day import DayResult, DaySpec

__all__ = ["day_command"]

_OF_REPLAY = ("min_replicas", "max_replicas", "cooldown")


@command(
    app,
    "day",
    "twoshift sim day --peak 20000 --batch-items 400M --price 2.50",
    {"cooldown_s": "cooldown"},
)
@with_settings(DaySettings)
def day_command(*, as_json: JsonFlag = False, **given: Any) -> int:
    """Simulate an autoscaled fleet over a day of traffic, with batch rows in its idle time.

    The result is compared with two separate fleets for the same work: an online fleet with the same autoscaler, and
    batch workers that are paid only while they work. With --replay, no traffic is simulated: the policy decides again
    on the observations in the log of a server's autoscaler. The exit code is then 1 if a decision differs.
    """
    said = given_of(DaySettings, given)
    _check_replay(said)
    settings = DaySettings(**said)
    if settings.replay is not None:
        named = (("min_replicas", "min_replicas"), ("max_replicas", "max_replicas"), ("cooldown", "cooldown_s"))
        return replay_day(settings.replay, {field: said[name] for name, field in named if name in said}, as_json)
    from twoshift.sim.day import simulate_day

    check_writable(settings.report, "--report", others=[settings.trace])
    spec = _spec(settings)
    with progress_bar("Simulating a day") as progress:
        result = simulate_day(spec, progress)
    if settings.report:
        from twoshift.cli.sim.day_report import day_report

        write_text(settings.report, day_report(spec, result), "--report")
        note(f"Report: {settings.report}")
    show(as_json, day_data(spec, result), _table(result), day_words(spec, result))
    return 0


def _spec(settings: DaySettings) -> DaySpec:
    from twoshift.sim.day import DaySpec
    from twoshift.sim.lanes import LanesSpec

    arrivals = read_trace(settings.trace)
    cost, row_tokens = chosen_device(settings.overhead_ms, settings.item_ms, settings.profile, arrivals)
    lanes = LanesSpec(
        cost,
        settings.max_batch,
        settings.slo_ms / 1e3,
        load=1.0,
        call_budget_s=settings.call_budget_s,
        seed=settings.seed,
        row_tokens=row_tokens,
        trace=arrivals,
    )
    return DaySpec(
        lanes,
        settings.peak,
        settings.trough,
        settings.batch_items,
        settings.price,
        settings.spot_discount,
        settings.start,
        settings.max_devices,
        trace=arrivals,
        copies=settings.copies,
    )


def _check_replay(said: Mapping[str, Any]) -> None:
    """Either kind of day has options that mean nothing to the other; raises InvalidInput."""
    is_replay = "replay" in said
    for name in said:
        if name != "replay" and (name in _OF_REPLAY) is not is_replay:
            why = "with --replay, which repeats recorded decisions" if is_replay else "without --replay FILE"
            raise Inapplicable(name, said[name], why)


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
        f"(${result.separate_usd:,.2f}). Two fleets cost ${result.static_usd:,.2f} if the online fleet has no "
        "autoscaler and is sized for its peak.",
        "Device hours: live h are for live rows, harvest h for batch rows in the idle time of live replicas, and batch "
        "h for dedicated batch workers. p99 is that of the answered rows; all other rows were refused immediately.",
    ]
    lost = result.online_alone.in_slo - ours.in_slo
    if lost > 0.005:
        lines.append(
            f"Batch work lowers the share of live requests inside the SLO by {100 * lost:.1f} percentage points, "
            "because some bursts arrive during a background call. A smaller --call-budget-ms avoids this."
        )
    if spec.batch_items:
        share_done = ours.batch_done / spec.batch_items
        when = "" if ours.batch_finished_hour is None else f" done after {ours.batch_finished_hour:.1f} h"
        more = "" if share_done >= 1 else " The remaining rows need a higher --max-devices."
        lines.append(f"Batch: {format_count(ours.batch_done)} rows ({share_done:.0%}){when}.{more}")
    return "\n".join(lines)
