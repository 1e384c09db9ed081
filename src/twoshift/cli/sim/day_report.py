"""The HTML report of `sim day`."""

from __future__ import annotations

from collections.abc import Callable

from twoshift import report
from twoshift._version import __version__
from twoshift.cli.sim.lanes_report import device_line
from twoshift.sim.day import DayResult, DaySpec, DayTick
from twoshift.units import format_count, format_duration

__all__ = ["day_report", "devices_figure"]

_HOUR = report.Axis("hour", kind="hours")


def day_report(spec: DaySpec, result: DayResult) -> str:
    """Load, devices, latency and dollars over the day."""
    sections = [
        report.Section("The day", [report.figures_row(_cards(spec, result))]),
        report.Section("Traffic and fleet", [_traffic(result), devices_figure(result)]),
        report.Section("Latency of live requests", [_latency(spec, result)]),
        report.Section("Cost", [_dollars(result), _hours(result)]),
        report.Section("Autoscaler decisions", [_decisions(result)]),
    ]
    traffic = "a trace" if spec.trace else f"about {format_count(spec.peak_per_s)} rows/s at the peak"
    backlog = format_count(spec.batch_items)
    subtitle = (
        f"{traffic.capitalize()}, {backlog} batch rows, ${spec.price_usd:.2f} a device-hour. {device_line(spec.lanes)}"
    )
    return report.page(
        "A day of live and batch work on one fleet", subtitle, sections, f"Made by twoshift {__version__}, sim day"
    )


def _cards(spec: DaySpec, result: DayResult) -> list[report.Card]:
    ours, slo_ms = result.together, spec.lanes.slo_s * 1e3
    done = ours.batch_finished_hour is not None or not spec.batch_items
    finished = "-" if ours.batch_finished_hour is None else format_duration(ours.batch_finished_hour * 3600)
    fits = ours.p99_ms is not None and ours.p99_ms <= slo_ms
    p99 = "-" if ours.p99_ms is None else f"{ours.p99_ms:.1f} ms"
    return [
        report.Card("Live p99", p99, f"objective {slo_ms:g} ms", "good" if fits else "bad"),
        report.Card(
            "Inside the SLO", f"{ours.in_slo:.2%}", "of all live rows", "good" if ours.in_slo >= 0.99 else "bad"
        ),
        report.Card("Batch finished", finished, "after the start", "good" if done else "bad"),
        report.Card("Cost", _usd(ours.usd), f"two fleets {_usd(result.separate_usd)}"),
        report.Card("Saved", f"{result.saved_share:.0%}", "compared with two autoscaled fleets"),
    ]


def _usd(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"


def _series(result: DayResult, name: str, pick: Callable[[DayTick], float | None], tone: report.Tone) -> report.Series:
    points = [(tick.hour, value) for tick in result.together.ticks if (value := pick(tick)) is not None]
    return report.Series(name, [x for x, _ in points], [y for _, y in points], tone=tone)


def _traffic(result: DayResult) -> report.Figure:
    series = [_series(result, "live rows offered", lambda t: t.rate_per_s, "blue")]
    return report.line_chart("Live traffic", series, _HOUR, report.Axis("rows/s", lo=0.0))


def devices_figure(result: DayResult) -> report.Figure:
    """Device by device: live, harvested, batch only, idle."""
    series = [
        _series(result, "live rows", lambda t: t.live_devices, "blue"),
        _series(result, "batch rows in idle time", lambda t: t.harvested_devices, "teal"),
        _series(result, "batch workers", lambda t: float(t.workers), "orange"),
        _series(result, "idle", lambda t: t.idle_devices, "muted"),
    ]
    return report.area_chart("Use of the devices", series, _HOUR, report.Axis("devices"))


def _latency(spec: DaySpec, result: DayResult) -> report.Figure:
    slo_ms = spec.lanes.slo_s * 1e3
    return report.line_chart(
        "p99 latency of live requests",
        [_series(result, "p99", lambda t: t.p99_ms, "blue")],
        _HOUR,
        report.Axis("latency", kind="ms", lo=0.0, hi=1.2 * slo_ms),
        marks=[report.Mark(slo_ms, f"SLO {slo_ms:g} ms")],
    )


def _dollars(result: DayResult) -> report.Figure:
    bars = [
        report.Bar("One fleet, both shifts", result.together.usd, tone="blue"),
        report.Bar("Two fleets, both autoscaled", result.separate_usd, tone="muted"),
        report.Bar("Two fleets, sized for the peak", result.static_usd, tone="muted"),
    ]
    return report.bar_chart("Dollars for the same work", bars, report.Axis(kind="usd"))


def _hours(result: DayResult) -> report.Block:
    ours, alone = result.together, result.online_alone
    headers = ["fleet", "live rows h", "batch rows in idle time h", "batch workers h", "idle h", "usd"]
    rows = [
        ["one", ours.live_hours, ours.harvested_hours, ours.dedicated_hours, ours.idle_hours, ours.usd],
        ["two", alone.live_hours, 0, result.batch_alone_hours, alone.idle_hours, result.separate_usd],
    ]
    return report.table(headers, rows)


def _decisions(result: DayResult) -> report.Block:
    taken = [tick for tick in result.together.ticks if tick.decision]
    rows = [[f"{int(t.hour):02d}:{round(t.hour % 1 * 60) % 60:02d}", t.decision] for t in taken[:200]]
    return report.table(["at", f"decision ({len(taken)} in all)"], rows)
