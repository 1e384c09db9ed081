"""A job's workers, as many as its window needs: what the policy says, done to what there is."""

from __future__ import annotations

from collections.abc import Mapping

from twoshift.batch.setting_values import AUTO
from twoshift.batch.settings import JobSettings
from twoshift.batch.worker_state import WorkerState
from twoshift.policy.deadline import DeadlinePolicy
from twoshift.policy.job_scaling import JobScaleLimits, JobScalePolicy
from twoshift.policy.leases import ShardCounts

__all__ = ["WorkerScaling"]


class WorkerScaling:
    """Nothing where a job has a fixed number of workers."""

    def __init__(self, settings: JobSettings, deadline: DeadlinePolicy, load_s: float) -> None:
        limits = JobScaleLimits(settings.most_workers, load_s)
        self._policy = JobScalePolicy(deadline, limits) if settings.workers == AUTO else None
        self.log: list[tuple[float, int, str]] = []  # seconds of the run, workers from then on, and why

    def change(
        self,
        workers: Mapping[int, WorkerState],
        remaining: float,
        counts: ShardCounts,
        elapsed_s: float,
        now_s: float,
    ) -> int:
        """How many workers to start; those that are not needed any more are marked as leaving."""
        if self._policy is None:
            return 0
        there = [worker for worker in workers.values() if not worker.leaving and worker.ended is None]
        wanted = self._policy.decide(remaining, len(there), counts.pending, now_s)
        if wanted.workers == len(there):
            return 0
        self.log.append((round(elapsed_s, 3), wanted.workers, wanted.why))
        more = wanted.workers - len(there)
        # First those that have the least in work
        for worker in sorted(there, key=lambda each: (each.ready, len(each.leases)))[: max(0, -more)]:
            worker.leaving = True
        stay = [worker for worker in workers.values() if _can_stay(worker)][: max(0, more)]
        for worker in stay:
            worker.leaving = False
        return max(0, more - len(stay))


def _can_stay(worker: WorkerState) -> bool:
    return worker.leaving and not worker.noticed and worker.ended is None
