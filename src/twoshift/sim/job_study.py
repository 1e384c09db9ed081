"""A job simulated many times, each time with and without speculation."""

from __future__ import annotations

from collections.abc import Callable

from twoshift.sim.job import JobOutcome, JobRun, JobSimulation, JobSpec, JobStudy
from twoshift.sim.scaled_job import ScaledSimulation

__all__ = ["simulate_job"]


def simulate_job(spec: JobSpec, progress: Callable[[int, int], None] | None = None) -> JobStudy:
    """Runs the job `spec.planned_runs` times each way; `progress` is told the shards done and in all."""
    count, shards = spec.planned_runs, spec.shards
    kind = ScaledSimulation if spec.scales else JobSimulation
    pairs: list[tuple[JobRun, JobRun]] = []
    for index in range(count):
        tick = _offset(progress, index * shards, count * shards)
        pairs.append(kind(spec, spec.seed + index).run_both(tick))
    return JobStudy(
        spec=spec,
        shards=shards,
        shard_s=spec.healthy_shard_s,
        ideal_s=spec.ideal_s,
        with_speculation=JobOutcome.of([pair[0] for pair in pairs], spec.window_s, speculate=True),
        without_speculation=JobOutcome.of([pair[1] for pair in pairs], spec.window_s, speculate=False),
    )


def _offset(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(before + done, total) if progress else None
