"""The HTML report of `sim lanes`."""

from __future__ import annotations

from collections.abc import Mapping

from twoshift import report
from twoshift._version import __version__
from twoshift.sim.lanes import LanesResult, LanesSpec
from twoshift.units import format_count

__all__ = ["device_line", "lanes_report"]


def lanes_report(spec: LanesSpec, results: Mapping[str, LanesResult]) -> str:
    """Latency against the SLO, and what each policy leaves for the background."""
    slo_ms = spec.slo_s * 1e3
    slow = any(ms > 3 * slo_ms for r in results.values() for ms in r.latencies_ms)
    # What an overloaded policy does to latency would hide everything else.
    shown = [report.Sample(name, [min(ms, 3 * slo_ms) for ms in r.latencies_ms]) for name, r in results.items()]
    latency = report.histogram(
        "Latency of live requests",
        shown,
        report.Axis("latency", kind="ms", lo=0.0),
        report.Axis("requests"),
        marks=[report.Mark(slo_ms, f"SLO {slo_ms:g} ms", axis="x")],
        note="Slower requests are shown at three times the SLO." if slow else "",
    )
    good = report.bar_chart(
        "Live rows per second answered within the SLO",
        [report.Bar(name, r.goodput, f"{r.in_slo:.1%} of the offered rows") for name, r in results.items()],
        report.Axis("rows/s"),
    )
    background = report.bar_chart(
        "Background rows per second",
        [report.Bar(name, r.background_per_s) for name, r in results.items()],
        report.Axis("rows/s"),
    )
    sections = [
        report.Section("Result", [report.figures_row(_cards(spec, results))]),
        report.Section("Live requests", [latency, good]),
        report.Section("Background work", [background]) if spec.background else None,
        report.Section("Figures", [_table(results)]),
    ]
    subtitle = f"One device at {spec.load:.0%} live load. {device_line(spec)}"
    return report.page(
        "Live and batch rows on one device",
        subtitle,
        [s for s in sections if s],
        f"Made by twoshift {__version__}, sim lanes",
    )


def device_line(spec: LanesSpec) -> str:
    """The device in a line: what is needed to run the same again."""
    cost = spec.cost
    row_ms = 1e3 * cost.row_s(spec.row_tokens, spec.row_tokens)
    return (
        f"Curve: {1e3 * cost.overhead_s:.4g} ms per call + {row_ms:.4g} ms per row, "
        f"at most {spec.max_batch} rows per call, SLO {1e3 * spec.slo_s:g} ms, "
        f"budget {1e3 * spec.limits.budget_s:g} ms, seed {spec.seed}"
    )


def _cards(spec: LanesSpec, results: Mapping[str, LanesResult]) -> list[report.Card]:
    name, result = next(iter(results.items()))
    p99 = result.p99_ms
    fits = p99 is not None and p99 <= spec.slo_s * 1e3
    return [
        report.Card("Policy", name),
        report.Card(
            "p99 latency",
            "-" if p99 is None else f"{p99:.1f} ms",
            f"objective {spec.slo_s * 1e3:g} ms",
            "good" if fits else "bad",
        ),
        report.Card(
            "Inside the SLO",
            f"{result.in_slo:.2%}",
            f"of {format_count(result.offered_per_s)} rows/s",
            "good" if result.in_slo >= 0.99 else "bad",
        ),
        report.Card("Background rows", format_count(result.background_per_s), "rows/s"),
    ]


def _table(results: Mapping[str, LanesResult]) -> report.Block:
    headers = [
        "policy",
        "p50 ms",
        "p99 ms",
        "offered rows/s",
        "rows/s in SLO",
        "refused",
        "dropped",
        "background rows/s",
        "busy",
    ]
    rows = [
        [
            name,
            r.p50_ms,
            r.p99_ms,
            r.offered_per_s,
            r.goodput,
            r.refused,
            r.dropped,
            r.background_per_s,
            f"{r.busy_share:.1%}",
        ]
        for name, r in results.items()
    ]
    return report.table(headers, rows)
