"""`sim lanes`: one device, live requests, background work beside them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, pretty, show, table
from twoshift.cli.params import JsonFlag, choice, duration, share
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
    TraceFile,
    app,
)
from twoshift.cli.sim.devices import chosen_device, read_trace
from twoshift.errors import InvalidInput

if TYPE_CHECKING:
    from twoshift.sim.lanes import LanesResult, LanesSpec

__all__ = ["lanes_command"]

_NAMES = ("twoshift", "strict", "window", "greedy")


@command(
    app,
    "lanes",
    """
    twoshift sim lanes --overhead-ms 4 --item-ms 0.25 --max-batch 32 \\
        --slo-ms 50 --load 0.3 --background --policy twoshift --seed 1
    """,
)
def lanes_command(
    overhead_ms: OverheadMs = None,
    item_ms: ItemMs = None,
    max_batch: MaxBatch = 32,
    slo_ms: SloMs = 50.0,
    load: Annotated[float, share("Live load, as a share of capacity at --max-batch.", zero=False, most=20.0)] = 0.3,
    background: Annotated[bool, typer.Option("--background", help="An endless backlog of batch rows.")] = False,
    policy: Annotated[str, choice("Who decides what runs next.", _NAMES)] = "twoshift",
    compare: Annotated[bool, typer.Option("--compare", help="Run all policies on the same arrivals.")] = False,
    call_budget_ms: CallBudgetMs = None,
    seconds: Annotated[float, duration("How long arrivals last, without --trace.", shown="60s")] = 60.0,
    noise: Annotated[float, share("Spread of the call times around the curve.")] = 0.0,
    profile: ProfileName = None,
    trace: TraceFile = None,
    seed: Seed = 1,
    record: Annotated[
        str | None, typer.Option("--record", metavar="FILE", help="Write every event and decision, for sim replay.")
    ] = None,
    report: ReportFile = None,
    as_json: JsonFlag = False,
) -> None:
    """One device: what live requests see, and what is left for background rows.

    A --trace keeps its pattern and is sped up or slowed down to --load; a row costs by its tokens. The call budget
    is ours: the other policies have none.
    """
    from twoshift.sim.lanes import LanesSpec

    check_writable(report, "--report", others=[trace, record])
    check_writable(record, "--record", others=[trace])
    if record and (compare or policy != "twoshift"):
        raise InvalidInput("record", record, "the policy twoshift alone: the others keep no journal")
    arrivals = read_trace(trace)
    cost, row_tokens = chosen_device(overhead_ms, item_ms, profile, arrivals)
    budget_s = None if call_budget_ms is None else call_budget_ms / 1e3
    spec = LanesSpec(
        cost, max_batch, slo_ms / 1e3, load, background, policy, budget_s, seconds, noise, seed, row_tokens, arrivals
    )
    names = _NAMES if compare else (policy,)
    results = {name: _simulate(dataclasses.replace(spec, policy=name), record) for name in names}
    if report:
        from twoshift.cli.sim.lanes_report import lanes_report

        write_text(report, lanes_report(spec, results), "--report")
        note(f"Report: {report}")
    data = _data(results[policy]) if not compare else {"policies": {n: _data(r) for n, r in results.items()}}
    show(as_json, {"policy": policy, **data} if not compare else data, _table(results), _words(spec, results))


def _simulate(spec: LanesSpec, record: str | None) -> LanesResult:
    from twoshift.sim.lanes import record_lanes, simulate_lanes

    if record is None:
        with progress_bar(f"Simulating {spec.policy}") as progress:
            return simulate_lanes(spec, progress)
    lines: list[str] = []
    with progress_bar("Simulating and recording") as progress:
        result = record_lanes(spec, lambda entry: lines.append(json.dumps(entry, separators=(",", ":"))), progress)
    lines.append(json.dumps(["end", len(lines)]))
    write_text(record, "\n".join(lines) + "\n", "--record")
    note(f"Journal: {record}, {len(lines):,} entries")
    return result


def _data(result: LanesResult) -> dict[str, Any]:
    names = [f.name for f in dataclasses.fields(result) if f.name != "latencies_ms"]
    return {name: getattr(result, name) for name in names}


def _table(results: dict[str, LanesResult]) -> Any:
    columns = ["<policy", "p50 ms", "p99 ms", "offered/s", "in SLO/s", "share", "batch/s", "busy"]
    rows = [
        [
            name,
            pretty(r.p50_ms),
            pretty(r.p99_ms),
            pretty(r.offered_per_s),
            pretty(r.goodput),
            f"{r.in_slo:.2%}",
            pretty(r.background_per_s),
            f"{r.busy_share:.0%}",
        ]
        for name, r in results.items()
    ]
    return table(columns, rows)


def _words(spec: LanesSpec, results: dict[str, LanesResult]) -> str:
    capacity = next(iter(results.values())).capacity_per_s
    lines = [f"Capacity is {pretty(capacity)} rows/s in calls of {spec.max_batch}; the SLO is {spec.slo_s * 1e3:g} ms."]
    lines.append("p99 is of the rows that were answered; share is of all that were offered.")
    if "twoshift" in results:
        if spec.background:
            budget_ms = 1e3 * spec.limits.budget_s
            lines.append(f"No call that carries background rows is planned to last over {budget_ms:g} ms.")
        if spec.background and not results["twoshift"].background_per_s:
            lines.append("No background row runs: a call over one of them is over that budget, or live load fills it.")
        refused = results["twoshift"].refused + results["twoshift"].dropped
        if refused:
            lines.append(f"{refused:,} rows were refused at once rather than answered late.")
    if "strict" in results and "twoshift" in results and results["strict"].background_per_s:
        gain = results["twoshift"].background_per_s / results["strict"].background_per_s
        lines.append(f"Riding along leaves {gain:.1f} times the background rows of strict priority.")
    if len(results) > 1:
        lines.append(
            "strict: priority, live and batch in separate calls. window: waits up to 5 ms for company. greedy: rides "
            "along with no budget; it and window serve everybody, however late."
        )
    return "\n".join(lines)
