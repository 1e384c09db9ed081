"""`sim lanes`: one device, live requests, background work beside them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, pretty, show, table
from twoshift.cli.params import JsonFlag, flags_of, given_of, with_settings
from twoshift.cli.progress import progress_bar
from twoshift.cli.sim.app import app
from twoshift.cli.sim.devices import chosen_device, chosen_server, read_trace
from twoshift.cli.sim.settings import LanesSettings
from twoshift.errors import Inapplicable, Malformed

if TYPE_CHECKING:
    from twoshift.sim.lanes import LanesResult, LanesSpec
    from twoshift.sim.served import ServedCurves
    from twoshift.sim.traffic import Arrivals

__all__ = ["lanes_command"]


@command(
    app,
    "lanes",
    """
    twoshift sim lanes --overhead-ms 4 --item-ms 0.25 --max-batch 32 \\
        --slo-ms 50 --load 0.3 --background --policy twoshift --seed 1
    """,
)
@with_settings(LanesSettings)
def lanes_command(*, as_json: JsonFlag = False, **given: Any) -> None:
    """Simulate live requests and batch rows on one device: live latency, and the capacity left for batch rows.

    The arrivals of a --trace keep their pattern and are scaled to --load; the time of a row depends on its tokens.
    Only the policy `twoshift` has a call budget. With --server, the simulation uses the costs that this server has
    measured.
    """
    settings = LanesSettings(**given_of(LanesSettings, given))
    record, report, policy = settings.record, settings.report, settings.policy
    check_writable(report, "--report", others=[settings.trace, record])
    check_writable(record, "--record", others=[settings.trace])
    if record and settings.shown_policies != ("twoshift",):
        option = "with --compare" if settings.compare else "without --policy twoshift"
        raise Inapplicable("record", record, f"{option}, because only the policy `twoshift` writes a journal")
    spec = _spec(settings)
    results = {name: _simulate(dataclasses.replace(spec, policy=name), record) for name in settings.shown_policies}
    if report:
        from twoshift.cli.sim.lanes_report import lanes_report

        write_text(report, lanes_report(spec, results), "--report")
        note(f"Report: {report}")
    data = {name: _data(result) for name, result in results.items()}
    told = {"policies": data} if settings.compare else {"policy": policy, **data[policy]}
    show(as_json, told, _table(results), _words(spec, results))


def _spec(settings: LanesSettings) -> LanesSpec:
    from twoshift.sim.host import HostCosts

    arrivals = read_trace(settings.trace, settings.scale_lengths)
    if settings.server is None:
        spec = _own_spec(settings, arrivals)
    else:
        _check_alone(settings)
        served = chosen_server(settings.server)
        if arrivals is not None and served.longest is not None:
            arrivals = arrivals.cut(served.longest)
        spec = _served_spec(served, settings, arrivals)
    host_ms, reply_ms, front_ms = settings.host_ms, settings.reply_ms, settings.front_ms
    host = HostCosts(before_s=(host_ms or 0.0) / 1e3, after_s=(reply_ms or 0.0) / 1e3)
    return dataclasses.replace(
        spec,
        background=settings.background,
        policy=settings.policy,
        call_budget_s=settings.call_budget_s,
        seconds=settings.seconds,
        seed=settings.seed,
        trace=arrivals,
        rows=settings.rows,
        lanes=settings.lanes or spec.lanes,
        overtaking=settings.overtake,
        replicas=settings.replicas,
        host=spec.host if host_ms is None and reply_ms is None else host,
        front=None if front_ms is None else HostCosts(before_s=front_ms / 1e3),
    )


def _own_spec(settings: LanesSettings, arrivals: Arrivals | None) -> LanesSpec:
    """The device that the options describe."""
    from twoshift.sim.lanes import LanesSpec

    cost, row_tokens = chosen_device(settings.overhead_ms, settings.item_ms, settings.profile, arrivals)
    max_batch, slo_s = settings.max_batch or 32, (settings.slo_ms or 50.0) / 1e3
    return LanesSpec(cost, max_batch, slo_s, settings.load, noise=settings.noise or 0.0, row_tokens=row_tokens)


def _check_alone(settings: LanesSettings) -> None:
    """A server brings these itself."""
    names = ("profile", "overhead_ms", "item_ms", "max_batch", "lanes", "overtake")
    flags = flags_of(LanesSettings)
    given = [flags[name] for name in names if getattr(settings, name)]
    if given:
        raise Inapplicable(given[0], True, "with --server, which supplies this value")


def _served_spec(served: ServedCurves, settings: LanesSettings, arrivals: Arrivals | None) -> LanesSpec:
    """The server as it is, or with another objective."""
    from twoshift.sim.lanes import LanesSpec

    limits, slo_ms, budget_s = served.limits, settings.slo_ms, settings.call_budget_s
    if slo_ms is not None or budget_s is not None:
        slo_s = limits.slo_s if slo_ms is None else slo_ms / 1e3
        limits = dataclasses.replace(limits, slo_s=slo_s, call_budget_s=budget_s)
    if limits.slo_s is None:
        raise Malformed("--server", "a server with an SLO; this server has none, so set --slo-ms")
    tokens = served.row_tokens if arrivals is None else max(1, round(float(arrivals.tokens.mean())))
    return LanesSpec(
        served.whole,
        limits.max_rows,
        limits.slo_s,
        settings.load,
        noise=settings.noise,
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
    columns = ["<policy", "p50 ms", "p99 ms", "offered rows/s", "rows/s in SLO", "share in SLO", "batch rows/s", "busy"]
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
    calls = f"calls of {spec.max_batch} rows" if spec.given is None else "the largest calls that the SLO allows"
    lines = [f"Capacity is {pretty(capacity)} rows/s in {calls}; the SLO is {spec.slo_s * 1e3:g} ms."]
    lines.append("The p99 covers answered rows only; the share inside the SLO covers all offered rows.")
    if "twoshift" in results:
        if spec.background:
            budget_ms = 1e3 * spec.limits.budget_s
            lines.append(f"No call that contains background rows is planned to take more than {budget_ms:g} ms.")
        if spec.background and not results["twoshift"].background_per_s:
            lines.append(
                "No background row runs: a call with one background row takes longer than this limit, or live requests "
                "use the whole device."
            )
        refused = results["twoshift"].refused + results["twoshift"].dropped
        if refused:
            lines.append(f"{refused:,} rows were refused immediately instead of being answered late.")
    if "strict" in results and "twoshift" in results and results["strict"].background_per_s:
        gain = results["twoshift"].background_per_s / results["strict"].background_per_s
        lines.append(
            f"The policy `twoshift` adds batch rows to live calls; it runs {gain:.1f} times as many background rows as "
            "the policy `strict`."
        )
    if len(results) > 1:
        lines.append(
            "The policy `strict` runs live rows first, and never live and batch rows in one call. The policy `window` "
            "waits up to 5 ms to fill a call. The policy `greedy` adds batch rows to live calls without a limit. "
            "`window` and `greedy` refuse no request, even if the answer will be late."
        )
    return "\n".join(lines)
