"""The HTML report of `sim job`."""

from __future__ import annotations

from twoshift import report
from twoshift._version import __version__
from twoshift.sim.job import JobOutcome, JobStudy
from twoshift.units import format_count, format_duration

__all__ = ["job_report"]


def job_report(study: JobStudy) -> str:
    """When the job ends, how it goes, and what is lost on the way."""
    spec = study.spec
    sections = [
        report.Section("The job", [report.figures_row(_cards(study))]),
        report.Section("Finish time", [_finishes(study), _timeline(study)]),
        report.Section("Cost", [_figures(study)]),
    ]
    subtitle = (
        f"{format_count(spec.items)} items on {spec.workers:,} preemptible workers, "
        f"{study.shards:,} shards, window {format_duration(spec.window_s)}"
    )
    return report.page("A job on preemptible workers", subtitle, sections, f"Made by twoshift {__version__}, sim job")


def _cards(study: JobStudy) -> list[report.Card]:
    yes = study.with_speculation
    window = format_duration(study.spec.window_s)
    return [
        report.Card("Finish (median)", format_duration(yes.finish_s.p50), f"p90 {format_duration(yes.finish_s.p90)}"),
        report.Card("Finishes within the window", f"{yes.chance:.0%}", window, "good" if yes.chance >= 0.9 else "bad"),
        report.Card("Lost to preemptions", f"{yes.lost_share:.2%}", "of the paid time"),
        report.Card("Cost", f"${yes.usd:,.2f}", f"spot at ${study.spec.spot_usd_per_hour:.2f}/h"),
    ]


def _finishes(study: JobStudy) -> report.Figure:
    window_s = study.spec.window_s
    samples = [
        report.Sample("with speculation", [run.finish_s for run in study.with_speculation.runs if run.finished]),
        report.Sample("without", [run.finish_s for run in study.without_speculation.runs if run.finished]),
    ]
    latest_s = max((value for sample in samples for value in sample.values), default=0.0)
    # A window far to the right would squeeze the distribution into one bar.
    near = [report.Mark(window_s, "window", axis="x")] if window_s < 1.5 * latest_s else []
    return report.histogram(
        "Finish times over the runs", samples, report.Axis("finish", kind="seconds"), report.Axis("runs"), marks=near
    )


def _timeline(study: JobStudy) -> report.Figure:
    series = [_done(study.with_speculation, "with speculation"), _done(study.without_speculation, "without")]
    return report.line_chart(
        "Shards done in the first run",
        series,
        report.Axis("time", kind="seconds"),
        report.Axis("done", kind="share", lo=0.0, hi=1.0),
    )


def _done(outcome: JobOutcome, name: str) -> report.Series:
    timeline = outcome.runs[0].timeline
    return report.Series(name, [at_s for at_s, _ in timeline], [share for _, share in timeline])


def _figures(study: JobStudy) -> report.Block:
    headers = [
        *("speculation", "finish p10", "finish p50", "finish p90", "finish p99", "in window"),
        *("time lost", "time duplicated", "preemptions", "usd"),
    ]
    rows = [
        [
            "yes" if each.speculate else "no",
            *(format_duration(getattr(each.finish_s, q)) for q in ("p10", "p50", "p90", "p99")),
            f"{each.chance:.0%}",
            f"{each.lost_share:.2%}",
            f"{each.duplicated_share:.2%}",
            each.preemptions,
            round(each.usd, 2),
        ]
        for each in (study.with_speculation, study.without_speculation)
    ]
    return report.table(headers, rows)
