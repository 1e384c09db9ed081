"""The demo's report: a page with latency over time, and the same figures as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

from figures import BATCH_PRICE, LIVE_PRICE, Figures
from live import Reply, percentile_ms
from verdict import Promise

from twoshift import __version__, report

__all__ = ["write_report"]

_BUCKET_S = 1.0


def write_report(folder: Path, figures: Figures, promises: list[Promise]) -> Path:
    """report.html and report.json in the folder."""
    data = figures.to_dict() | {"promises": {each.what: each.kept for each in promises}}
    (folder / "report.json").write_text(json.dumps(data, indent=2) + "\n")
    path = folder / "report.html"
    sections = [
        report.Section("Result", [report.figures_row(_cards(figures))]),
        report.Section("Live requests", [_latency(figures)], _events(figures)),
        report.Section("Cost per million rows", [_dollars(figures)], _prices(figures)),
    ]
    subtitle = f"minilm on {figures.replicas} replicas, SLO {figures.slo_ms:g} ms, {figures.live_per_s:.0f} requests/s"
    path.write_text(report.page("One fleet, both shifts", subtitle, sections, f"Made by twoshift {__version__}, demo"))
    return path


def _cards(figures: Figures) -> list[report.Card]:
    without, beside = figures.without_job(), figures.with_job()
    cards = [_p99("p99 without the job", without, figures), _p99("p99 with the job", beside, figures)]
    lost = figures.rows.lost
    return [
        *cards,
        report.Card("Harvested", f"{figures.batch.rows / figures.job_s:,.0f} rows/s", "beside live requests"),
        report.Card("Rows lost", f"{lost:,}", f"of {figures.rows.asked:,}", "bad" if lost else "good"),
        report.Card("Parity", f"{figures.parity.least:.6f}", "least cosine, online against batch"),
    ]


def _p99(label: str, replies: list[Reply], figures: Figures) -> report.Card:
    p99 = percentile_ms(replies, 0.99)
    state = "good" if p99 <= figures.slo_ms else "bad"
    return report.Card(label, f"{p99:.1f} ms", f"p50 {percentile_ms(replies, 0.5):.1f} ms", state)


def _latency(figures: Figures) -> report.Figure:
    at, slo_ms = figures.moments, figures.slo_ms
    seconds = range(math.ceil((at.ended_s - at.began_s) / _BUCKET_S))
    buckets = [figures.live.between((at.began_s + k * _BUCKET_S, at.began_s + (k + 1) * _BUCKET_S)) for k in seconds]
    known = [(k * _BUCKET_S, each) for k, each in zip(seconds, buckets, strict=True) if each]
    series = [
        report.Series(name, [x for x, _ in known], [percentile_ms(each, share) for _, each in known], tone)
        for name, share, tone in (("p50", 0.5, "teal"), ("p99", 0.99, "blue"))
    ]
    ended = "failed" if figures.job_problem else "done"
    moments = [
        (when, label)
        for when, label in ((at.job_began_s, "job"), (at.killed_s, "kill -9"), (at.job_ended_s, ended))
        if when
    ]
    marks = [report.Mark(slo_ms, f"SLO {slo_ms:g} ms")]
    marks += [report.Mark(when - at.began_s, label, axis="x") for when, label in moments]
    x, y = report.Axis("time", kind="seconds", lo=0.0), report.Axis("latency", kind="ms", lo=0.0)
    return report.line_chart("Latency of live requests, second by second", series, x, y, marks=marks)


def _events(figures: Figures) -> str:
    back_s = figures.recovered_s
    if not figures.moments.killed_s:
        return f"No replica was killed: {figures.job_problem}."
    replaced = "not replaced in time" if back_s is None else f"replaced {back_s:.1f} s later"
    return f"A replica was killed beside the job and {replaced}; its shards were done again."


def _dollars(figures: Figures) -> report.Figure:
    alone, both = figures.fleet_usd
    bars = [
        report.Bar("Live, by device time", figures.alone.usd_per_million(LIVE_PRICE), tone="blue"),
        report.Bar("Batch, by device time", figures.batch.usd_per_million(BATCH_PRICE), tone="teal"),
        report.Bar("The fleet, live alone", alone, tone="muted"),
        report.Bar("The fleet, both shifts", both, tone="muted"),
        report.Bar("Reference, live", figures.reference[0], tone="orange"),
        report.Bar("Reference, batch", figures.reference[1], tone="orange"),
    ]
    return report.bar_chart("Dollars per million rows", bars, report.Axis(kind="usd"))


def _prices(figures: Figures) -> str:
    return (
        f"A replica is priced at ${LIVE_PRICE:.2f} an hour for live rows and at ${BATCH_PRICE:.2f} for batch rows, as "
        f"in the reference case (6 ms per call, 0.18 ms per item, batches of 1 and 512). The fleet's bars pay its "
        f"{figures.replicas} replicas at ${LIVE_PRICE:.2f} all the time, idle or not."
    )
