"""A finished job in numbers: totals over every part and every run, as JSON and as a page."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from twoshift import report
from twoshift._version import __version__
from twoshift.batch.part import PartStats
from twoshift.batch.plan import Plan
from twoshift.batch.receipt import Receipt

__all__ = ["RunRecord", "Summary", "summary_page"]


class RunRecord(msgspec.Struct, frozen=True):
    """One run of a job: what it took, whether it came to its end or not."""

    began_unix_s: float
    elapsed_s: float
    workers: int
    rows: int  # committed
    errors: int  # of them
    busy_s: float  # of the devices
    tokens: int
    padding_tokens: int
    failed_calls: int  # split and tried again: out of memory, or a bad row in them
    retries: int
    speculated: int
    deaths: tuple[str, ...]
    failures: dict[str, int]  # of shards, by message
    timeline: tuple[tuple[float, int, float], ...]  # seconds, rows, busy seconds
    usd: float | None


class Summary(msgspec.Struct, frozen=True):
    """Everything that the report says."""

    model: str
    precision: str
    shards: int
    rows: int
    errors: int
    error_kinds: dict[str, int]
    truncated: int
    tokens: int
    padding: float  # share of what the devices ran
    elapsed_s: float  # over all runs
    device_s: float  # of committed shards
    wasted_s: float  # of the devices, on shards that were lost or done twice
    busy: float  # share of the workers' time
    rows_per_s: float
    shard_seconds: tuple[float, ...]  # p10, p50, p90, longest
    retries: int
    speculated: int
    deaths: tuple[str, ...]
    failures: dict[str, int]
    failed_calls: int
    usd: float | None
    usd_per_million: float | None
    parity: Receipt | None
    precision_parity: float | None  # of a lossy precision: with full precision, on the job's first rows
    runs: tuple[RunRecord, ...]

    @classmethod
    def of(cls, plan: Plan, stats: Sequence[PartStats], runs: Sequence[RunRecord], parity: Receipt | None) -> Summary:
        """The sums."""
        rows, elapsed_s = sum(each.rows for each in stats), sum(run.elapsed_s for run in runs)
        tokens, padding = sum(run.tokens for run in runs), sum(run.padding_tokens for run in runs)
        prices = [run.usd for run in runs if run.usd is not None]
        usd = sum(prices) if prices else None
        busy_s, device_s = sum(run.busy_s for run in runs), sum(each.device_s for each in stats)
        worker_s = sum(run.elapsed_s * max(1, run.workers) for run in runs)
        return cls(
            model=plan.model.name,
            precision=plan.model.precision,
            shards=len(plan.shards),
            rows=rows,
            errors=sum(each.errors for each in stats),
            error_kinds=dict(sum((Counter(each.kinds) for each in stats), Counter[str]())),
            truncated=sum(each.truncated for each in stats),
            tokens=sum(each.tokens for each in stats),
            padding=padding / max(1, tokens + padding),
            elapsed_s=elapsed_s,
            device_s=device_s,
            wasted_s=max(0.0, busy_s - device_s),
            busy=min(1.0, busy_s / max(1e-9, worker_s)),
            rows_per_s=rows / max(1e-9, elapsed_s),
            shard_seconds=_quantiles([each.seconds for each in stats]),
            retries=sum(run.retries for run in runs),
            speculated=sum(run.speculated for run in runs),
            deaths=tuple(reason for run in runs for reason in run.deaths),
            failures=dict(sum((Counter(run.failures) for run in runs), Counter[str]())),
            failed_calls=sum(run.failed_calls for run in runs),
            usd=usd,
            usd_per_million=None if usd is None or not rows else 1e6 * usd / rows,
            parity=parity,
            precision_parity=plan.model.parity,
            runs=tuple(runs),
        )


def _quantiles(seconds: list[float]) -> tuple[float, ...]:
    ranked = sorted(seconds) or [0.0]
    return tuple(ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in (0.1, 0.5, 0.9, 1.0))


def summary_page(summary: Summary, stats: Sequence[PartStats]) -> str:
    """The report as one HTML file."""
    sections = [
        report.Section("In short", [report.figures_row(_cards(summary)), report.text(_words(summary))]),
        report.Section("Over time", [(_rate_figure(summary), _busy_figure(summary))]),
        report.Section("Shards", [_shard_figure(stats)]),
    ]
    if summary.error_kinds or summary.failures:
        rows: list[Sequence[Any]] = [("rows", kind, count) for kind, count in sorted(summary.error_kinds.items())]
        rows += [("shards", message, count) for message, count in sorted(summary.failures.items())]
        sections.append(report.Section("What went wrong", [report.table(("of", "what", "times"), rows)]))
    title = f"{summary.rows:,} rows by {summary.model} in {summary.precision}"
    return report.page("A job", title, sections, f"Made by twoshift {__version__}")


def _cards(summary: Summary) -> list[report.Card]:
    share = summary.errors / max(1, summary.rows)
    cards = [
        report.Card("rows", f"{summary.rows:,}", f"{summary.shards:,} shards"),
        report.Card("rows a second", f"{summary.rows_per_s:,.1f}", f"{summary.elapsed_s:,.0f} s in all"),
        report.Card("errors", f"{summary.errors:,}", f"{share:.2%}", "bad" if summary.errors else "good"),
        report.Card("device busy", f"{summary.busy:.0%}", f"{summary.padding:.1%} padding"),
    ]
    if summary.usd is not None and summary.usd_per_million is not None:
        cards.append(report.Card("dollars", f"${summary.usd:,.2f}", f"${summary.usd_per_million:,.2f} a million rows"))
    return cards


def _words(summary: Summary) -> list[str]:
    words = []
    parity = summary.parity
    if parity is not None and parity.rows:
        told = []
        if parity.worst_cosine is not None:
            told.append(f"worst cosine {parity.worst_cosine:.7f}")
        if parity.worst_difference is not None:
            told.append(f"largest difference {parity.worst_difference:.3g}")
        told.append(f"{parity.unequal} rows with another label")
        words.append(f"Parity: {parity.rows} rows scored again one at a time, as live requests: {', '.join(told)}.")
    if summary.precision_parity is not None:
        near = f"{summary.precision_parity:.4f}"
        words.append(f"In {summary.precision} the answers' parity with fp32 is {near} on the job's first rows.")
    words.append(
        f"{summary.retries:,} shards tried again, {summary.speculated:,} second copies, {len(summary.deaths):,} "
        f"workers lost, {summary.failed_calls:,} calls split and tried again, {summary.truncated:,} rows cut to the "
        f"model's length. {summary.wasted_s:,.1f} of {summary.device_s + summary.wasted_s:,.1f} device seconds went "
        "into work that was lost or done twice."
    )
    return words


def _rate_figure(summary: Summary) -> report.Figure:
    xs, ys, began_s = list[float](), list[float](), 0.0
    for run in summary.runs:
        points = run.timeline
        for (before_s, before, _), (at_s, rows, _) in itertools.pairwise(points):
            xs.append(began_s + at_s)
            ys.append((rows - before) / max(1e-9, at_s - before_s))
        began_s += run.elapsed_s
    axis = report.Axis("time", kind="seconds")
    return report.line_chart("Rows a second", [report.Series("rows/s", xs, ys)], axis, report.Axis("rows/s", lo=0))


def _busy_figure(summary: Summary) -> report.Figure:
    xs, ys, began_s = list[float](), list[float](), 0.0
    for run in summary.runs:
        points = run.timeline
        for (before_s, _, before), (at_s, _, busy_s) in itertools.pairwise(points):
            xs.append(began_s + at_s)
            ys.append(min(1.0, (busy_s - before) / max(1e-9, (at_s - before_s) * max(1, run.workers))))
        began_s += run.elapsed_s
    share = report.Axis("busy", kind="share", lo=0, hi=1)
    return report.line_chart("Device busy", [report.Series("busy", xs, ys)], report.Axis("time", kind="seconds"), share)


def _shard_figure(stats: Sequence[PartStats]) -> report.Figure:
    seconds = [each.seconds for each in stats]
    return report.histogram("Time of a shard", [report.Sample("shards", seconds)], report.Axis("time", kind="seconds"))
