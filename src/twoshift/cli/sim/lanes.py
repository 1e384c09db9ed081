"""`sim lanes`: one device, live requests, background work beside them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, pretty, show, table
from twoshift.cli.params import JsonFlag, choice, duration, millis, share, text, whole
from twoshift.cli.plan.curves import ProfileName
from twoshift.cli.progress import progress_bar
from twoshift.cli.sim.app import (
    CallBudgetMs,
    HostMs,
    ItemMs,
    LengthScale,
    OverheadMs,
    ReplyMs,
    ReportFile,
    Seed,
    TraceFile,
    app,
)
from twoshift.cli.sim.devices import chosen_device, chosen_server, read_trace
from twoshift.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twoshift.sim.lanes import LanesResult, LanesSpec
    from twoshift.sim.served import ServedCurves
    from twoshift.sim.traffic import Arrivals

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
    max_batch: Annotated[
        int | None, whole("Maximum number of rows per call.", most=1_000_000, shown="32, without --server")
    ] = None,
    slo_ms: Annotated[
        float | None, millis("Latency objective of a live request.", shown="50, without --server")
    ] = None,
    load: Annotated[float, share("Live load, as a share of capacity at --max-batch.", zero=False, most=20.0)] = 0.3,
    background: Annotated[bool, typer.Option("--background", help="Add an endless backlog of batch rows.")] = False,
    policy: Annotated[str, choice("Scheduling policy.", _NAMES)] = "twoshift",
    compare: Annotated[bool, typer.Option("--compare", help="Run all policies on the same arrivals.")] = False,
    call_budget_ms: CallBudgetMs = None,
    seconds: Annotated[float, duration("Simulated time, without --trace.", shown="60s")] = 60.0,
    noise: Annotated[
        float | None,
        share("Random spread of call times around the cost curve.", shown="0; with --server, the observed spread"),
    ] = None,
    profile: ProfileName = None,
    server: Annotated[
        str | None,
        text("Simulate this server: its URL, or a file with the reply of /v1/derived/MODEL.", metavar="URL"),
    ] = None,
    trace: TraceFile = None,
    scale_lengths: LengthScale = 1.0,
    rows: Annotated[int, whole("Rows per request, without --trace.", most=4096)] = 1,
    lanes: Annotated[
        int | None, whole("Number of concurrent calls on the device.", most=64, shown="1, without --server")
    ] = None,
    overtake: Annotated[
        bool, typer.Option("--overtake", help="Let live calls overtake background calls, as on a GPU.")
    ] = False,
    replicas: Annotated[int, whole("Number of replica processes, each with its own device.", most=64)] = 1,
    host_ms: HostMs = None,
    reply_ms: ReplyMs = None,
    front_ms: Annotated[
        float | None,
        millis("With several replicas: time that the front-end process spends per request.", zero=True, shown="0"),
    ] = None,
    seed: Seed = 1,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="FILE", help="Write every event and decision to this file, for `sim replay`."),
    ] = None,
    report: ReportFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate live and batch requests on one device: live latency, and the capacity left for batch rows.

    A --trace keeps its pattern and is scaled to --load; the cost of a row depends on its tokens. Only the policy
    `twoshift` has a call budget. With --server the device is as that server has learned it.
    """
    from twoshift.sim.host import HostCosts
    from twoshift.sim.lanes import LanesSpec

    check_writable(report, "--report", others=[trace, record])
    check_writable(record, "--record", others=[trace])
    if record and (compare or policy != "twoshift"):
        raise InvalidInput("record", record, "no value unless --policy is twoshift: the other policies have no journal")
    arrivals = read_trace(trace, scale_lengths)
    budget_s = None if call_budget_ms is None else call_budget_ms / 1e3
    if server is None:
        cost, row_tokens = chosen_device(overhead_ms, item_ms, profile, arrivals)
        spec = LanesSpec(cost, max_batch or 32, (slo_ms or 50.0) / 1e3, load, noise=noise or 0.0, row_tokens=row_tokens)
    else:
        own = {"--profile": profile, "--overhead-ms": overhead_ms, "--item-ms": item_ms}
        _check_alone(own | {"--max-batch": max_batch, "--lanes": lanes, "--overtake": overtake or None})
        served = chosen_server(server)
        if arrivals is not None and served.longest is not None:
            arrivals = arrivals.cut(served.longest)
        spec = _served_spec(served, load, slo_ms, budget_s, noise, arrivals)
    host = HostCosts(before_s=(host_ms or 0.0) / 1e3, after_s=(reply_ms or 0.0) / 1e3)
    spec = dataclasses.replace(
        spec,
        background=background,
        policy=policy,
        call_budget_s=budget_s,
        seconds=seconds,
        seed=seed,
        trace=arrivals,
        rows=rows,
        lanes=spec.lanes if lanes is None else lanes,
        overtaking=overtake,
        replicas=replicas,
        host=host if host_ms is not None or reply_ms is not None else spec.host,
        front=None if front_ms is None else HostCosts(before_s=front_ms / 1e3),
    )
    names = _NAMES if compare else (policy,)
    results = {name: _simulate(dataclasses.replace(spec, policy=name), record) for name in names}
    if report:
        from twoshift.cli.sim.lanes_report import lanes_report

        write_text(report, lanes_report(spec, results), "--report")
        note(f"Report: {report}")
    data = _data(results[policy]) if not compare else {"policies": {n: _data(r) for n, r in results.items()}}
    show(as_json, {"policy": policy, **data} if not compare else data, _table(results), _words(spec, results))


def _check_alone(others: Mapping[str, object]) -> None:
    """A server brings these itself."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise InvalidInput(
            "--server", ", ".join(given), f"no {given[0]}: with --server, the server supplies this value"
        )


def _served_spec(
    served: ServedCurves,
    load: float,
    slo_ms: float | None,
    budget_s: float | None,
    noise: float | None,
    arrivals: Arrivals | None,
) -> LanesSpec:
    """The server as it is, or with another objective."""
    from twoshift.sim.lanes import LanesSpec

    limits = served.limits
    if slo_ms is not None or budget_s is not None:
        slo_s = limits.slo_s if slo_ms is None else slo_ms / 1e3
        limits = dataclasses.replace(limits, slo_s=slo_s, call_budget_s=budget_s)
    if limits.slo_s is None:
        raise InvalidInput("--server", None, "a server with an SLO")
    tokens = served.row_tokens if arrivals is None else max(1, round(float(arrivals.tokens.mean())))
    return LanesSpec(
        served.whole,
        limits.max_rows,
        limits.slo_s,
        load,
        noise=noise,
        row_tokens=tokens,
        lanes=limits.lanes,
        lane_cost=served.lane,
        given=limits,
        host=served.host,
    )


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
    calls = f"calls of {spec.max_batch}" if spec.given is None else "the largest calls that its SLO allows"
    lines = [f"Capacity is {pretty(capacity)} rows/s in {calls}; the SLO is {spec.slo_s * 1e3:g} ms."]
    lines.append("p99 covers answered rows; the share covers all offered rows.")
    if "twoshift" in results:
        if spec.background:
            budget_ms = 1e3 * spec.limits.budget_s
            lines.append(f"No call that contains background rows is planned to take more than {budget_ms:g} ms.")
        if spec.background and not results["twoshift"].background_per_s:
            lines.append(
                "No background row runs: a call with one row exceeds that budget, or live requests use all of it."
            )
        refused = results["twoshift"].refused + results["twoshift"].dropped
        if refused:
            lines.append(f"{refused:,} rows were refused immediately instead of being answered late.")
    if "strict" in results and "twoshift" in results and results["strict"].background_per_s:
        gain = results["twoshift"].background_per_s / results["strict"].background_per_s
        lines.append(f"Adding batch rows to live calls leaves {gain:.1f} times the background rows of strict priority.")
    if len(results) > 1:
        lines.append(
            "strict: live rows first, live and batch rows in separate calls. window: waits up to 5 ms to fill a batch. "
            "greedy: adds batch rows to live calls without a limit. window and greedy refuse no request, however late."
        )
    return "\n".join(lines)
