"""`sim job`: a job on preemptible workers, with stragglers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, plain, pretty, show, table
from twoshift.cli.params import JsonFlag, given_of, with_settings
from twoshift.cli.progress import progress_bar
from twoshift.cli.sim.app import app
from twoshift.cli.sim.settings import SimJobSettings
from twoshift.errors import Inapplicable
from twoshift.units import format_duration

if TYPE_CHECKING:
    from twoshift.sim.job import JobOutcome, JobSpec, JobStudy

__all__ = ["job_command"]


@command(
    app,
    "job",
    """
    twoshift sim job --items 100M --workers 100 --rate 100 --window 3h \\
        --preemptions-per-hour 0.2 --price 2.50 --spot-discount 0.6
    """,
    fields={"shard_s": "shard_seconds"},
)
@with_settings(SimJobSettings)
def job_command(*, as_json: JsonFlag = False, **given: Any) -> None:
    """Simulate a job on preemptible workers, with and without speculative execution: duration, lost work and cost."""
    from twoshift.sim.job_study import simulate_job

    settings = SimJobSettings(**given_of(SimJobSettings, given))
    check_writable(settings.report, "--report")
    if settings.workers is not None and settings.max_workers is not None:
        raise Inapplicable("--max-workers", settings.max_workers, "with --workers: use only one of the two")
    with progress_bar("Simulating the job") as progress:
        study = simulate_job(_spec(settings), lambda done, of: progress(done / of))
    if settings.report:
        from twoshift.cli.sim.job_report import job_report

        write_text(settings.report, job_report(study), "--report")
        note(f"Report: {settings.report}")
    show(as_json, job_data(study), _table(study), job_words(study))


def _spec(settings: SimJobSettings) -> JobSpec:
    from twoshift.sim.job import JobSpec

    return JobSpec(
        items=settings.items,
        workers=settings.max_workers or settings.workers or 100,
        scales=settings.max_workers is not None,
        rate_items_per_s=settings.rate,
        window_s=settings.window,
        shard_s=settings.shard_seconds,
        preemptions_per_hour=settings.preemptions_per_hour,
        restart_s=settings.restart,
        straggler_share=settings.stragglers,
        straggler_factor=settings.slowdown,
        price_usd_per_hour=settings.price,
        spot_discount=settings.spot_discount,
        runs=settings.runs,
        seed=settings.seed,
    )


def job_data(study: JobStudy) -> dict[str, Any]:
    """The JSON form, without timelines."""

    def outcome(each: JobOutcome) -> dict[str, Any]:
        data = plain(each)
        data["runs"] = [run.finish_s if run.finished else None for run in each.runs]
        return data

    return {
        "shards": study.shards,
        "shard_s": study.shard_s,
        "ideal_s": study.ideal_s,
        "runs": len(study.with_speculation.runs),
        "with_speculation": outcome(study.with_speculation),
        "without_speculation": outcome(study.without_speculation),
        "forecasts": [plain(forecast) for forecast in study.with_speculation.runs[0].forecasts],
    }


def _table(study: JobStudy) -> Any:
    columns = ["<copies", "p50", "p90", "latest", "in window", "time lost", "time duplicated", "usd"]
    rows = [
        [
            "yes" if each.speculate else "no",
            format_duration(each.finish_s.p50),
            format_duration(each.finish_s.p90),
            format_duration(each.finish_s.max),
            f"{each.chance:.0%}",
            f"{each.lost_share:.2%}",
            f"{each.duplicated_share:.2%}",
            f"{each.usd:,.2f}",
        ]
        for each in (study.with_speculation, study.without_speculation)
    ]
    return table(columns, rows, title="Finish time with and without speculative copies of slow shards")


def _copies(study: JobStudy) -> str:
    yes, no = study.with_speculation, study.without_speculation
    if yes.speculated < 1:
        return "No shard was slow enough to be copied."
    gain_s = no.finish_s.p50 - yes.finish_s.p50
    if not math.isfinite(gain_s):
        return f"{pretty(yes.speculated, 3)} shards were copied."
    word = "earlier" if gain_s >= 0 else "later"
    return (
        f"Speculative execution ends the job {format_duration(abs(gain_s))} {word}, with {pretty(yes.speculated, 3)} "
        "copied shards."
    )


def _scaled(study: JobStudy) -> list[str]:
    runs, window_s = study.with_speculation.runs, study.spec.window_s
    most = max(workers for run in runs for _, workers in run.scaling)
    mean = sum(run.paid_s for run in runs) / max(1e-9, sum(run.finish_s for run in runs))
    early_s = window_s - study.with_speculation.finish_s.p50
    when = f"{format_duration(abs(early_s))} {'before' if early_s >= 0 else 'after'} the end of the window"
    return [f"The job uses 1 to {most:,} workers, {pretty(mean, 3)} on average. Half of the runs end {when}."]


def _advice(study: JobStudy) -> list[str]:
    spec, late_s = study.spec, study.with_speculation.finish_s.p90
    workers = math.ceil(min(spec.workers * late_s / spec.window_s, 1e15))
    if late_s == math.inf:
        return ["A smaller --shard-seconds loses less work at each preemption."]
    if late_s > spec.window_s:
        return [f"The job can miss the window: about {workers:,} workers would finish in time in nine of ten runs."]
    if workers <= 0.75 * spec.workers:
        return [f"The window is longer than needed: about {workers:,} workers would also finish in time."]
    return []


def job_words(study: JobStudy) -> str:
    """What the table says."""
    yes, no = study.with_speculation, study.without_speculation
    lines = [
        f"{pretty(study.shards)} shards of {format_duration(study.shard_s)}, {len(yes.runs)} runs with and without "
        f"speculative execution. Without failures the job would take {format_duration(study.ideal_s)}.",
        f"Preemptions ({pretty(yes.preemptions, 3)} per run) lose {yes.lost_share:.2%} of the paid time.",
        _copies(study),
        *(_scaled(study) if study.spec.scales else _advice(study)),
    ]
    given_up = sum(not run.finished for each in (yes, no) for run in each.runs)
    if given_up:
        lines.append(f"{given_up} runs were abandoned, because preemptions and restarts prevented any progress.")
    for forecast in yes.runs[0].forecasts:
        if forecast.outlook.eta_s is not None:
            lines.append(
                f"When {forecast.share:.0%} of the first run was done, its predicted duration was "
                f"{format_duration(forecast.outlook.eta_s)}; the run took {format_duration(forecast.finish_s)}."
            )
    return "\n".join(lines)
