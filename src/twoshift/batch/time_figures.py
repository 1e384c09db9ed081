"""A job over time: its runs where they were, with what happened to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from twoshift import report
from twoshift.batch.run_record import RunRecord

__all__ = ["FEWEST_POINTS", "time_figures"]

FEWEST_POINTS = 3  # of a chart: fewer show nothing that the numbers do not say
_MOST_MARKS = 12
_SHORT = 24  # characters of a mark


def time_figures(runs: Sequence[RunRecord]) -> Iterator[report.Figure]:
    """Rates since the beginning of the first run, a line for each run: what lies between them is a gap.

    Nothing where there are too few points.
    """
    if not runs:
        return
    began_s = min(run.began_unix_s for run in runs)
    rates, shares = list[report.Series](), list[report.Series]()
    for number, run in enumerate(runs, 1):
        name, offset_s = f"run {number}" if len(runs) > 1 else "rows/s", run.began_unix_s - began_s
        points = list(_points(run))
        if not points:
            continue
        xs = [offset_s + at_s for at_s, _, _ in points]
        rates.append(report.Series(name, xs, [rate for _, rate, _ in points]))
        shares.append(report.Series(name if len(runs) > 1 else "busy", xs, [busy for _, _, busy in points]))
    if sum(len(each.xs) for each in rates) < FEWEST_POINTS:
        return
    at, marks = report.Axis("time", kind="seconds"), _marks(runs, began_s)
    yield report.line_chart("Rows per second", rates, at, report.Axis("rows/s", lo=0), marks=marks)
    yield report.line_chart("Device busy", shares, at, report.Axis("busy", kind="share", lo=0, hi=1))


def _points(run: RunRecord) -> Iterator[tuple[float, float, float]]:
    """Seconds, rows a second and the busy share."""
    for (before_s, before_rows, before_busy_s), (at_s, rows, busy_s) in itertools.pairwise(_moved(run.timeline)):
        took_s = max(1e-9, at_s - before_s)
        busy = min(1.0, (busy_s - before_busy_s) / (took_s * max(1, run.workers)))
        yield at_s, (rows - before_rows) / took_s, busy


def _moved(timeline: Sequence[tuple[float, int, float]]) -> Iterator[tuple[float, int, float]]:
    """The points at which a call had ended since the last: what it did belongs to all the time before it."""
    last = None
    for point in timeline:
        if last is None or point[1:] != last[1:]:
            yield point
            last = point


def _marks(runs: Sequence[RunRecord], began_s: float) -> list[report.Mark]:
    """Resumes, deaths, notices and changes of the number of workers; the first of them, where there are many."""
    found, until_s = list[tuple[float, str]](), began_s
    for run in runs:
        if until_s < run.began_unix_s:  # runs of pieces are at the same time
            found.append((run.began_unix_s - began_s, "resumed"))
        until_s = max(until_s, run.began_unix_s + run.elapsed_s)
    for run in runs:
        offset_s = run.began_unix_s - began_s
        found += [(offset_s + at_s, what) for at_s, what in run.marks]
        found += [(offset_s + at_s, f"{workers} workers") for at_s, workers, _ in run.scaling]
    return [report.Mark(at_s, _short(what), "x") for at_s, what in sorted(found)[:_MOST_MARKS]]


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."
