"""A job that has as many workers as its window needs, by the same policy as a real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from twoshift.policy.deadline import Outlook
from twoshift.policy.job_scaling import JobScaleLimits, JobScalePolicy
from twoshift.sim.job import JobRun, JobSimulation, JobSpec

__all__ = ["ScaledSimulation"]


class ScaledSimulation(JobSimulation):
    """Workers are off, on or leaving: those that leave end their shard first. A new one is paid while it loads."""

    def __init__(self, spec: JobSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self._policy = JobScalePolicy(self._deadline, JobScaleLimits(spec.workers, spec.restart_s))
        self._on: dict[int, float] = {0: 0.0}  # worker -> since when it is paid
        self._leaving: set[int] = set()
        self._over_s = 0.0  # paid for workers that are off by now
        self._scaling: list[tuple[float, int]] = [(0.0, 1)]

    def _begin(self) -> None:
        self._take(0, 0.0)
        self._decide(0.0)

    def _take(self, worker: int, now_s: float) -> bool:
        if worker in self._leaving:
            self._turn_off(worker, now_s)
            return True
        return super()._take(worker, now_s)

    def _note(self, now_s: float, progress: Callable[[int], None]) -> None:
        super()._note(now_s, progress)
        self._decide(now_s)

    def _decide(self, now_s: float) -> None:
        there = len(self._on) - len(self._leaving)
        left = self._spec.items * (1 - self._done / self._total)
        wanted = self._policy.decide(left, there, self._shards.counts().pending, now_s).workers
        if wanted == there:
            return
        self._scaling.append((now_s, wanted))
        for _ in range(wanted - there):
            self._turn_on(now_s)
        for worker in self._least_busy()[: max(0, there - wanted)]:
            self._leaving.add(worker)
            if worker in self._idle:
                self._idle.remove(worker)
                self._turn_off(worker, now_s)

    def _least_busy(self) -> list[int]:
        there = [worker for worker in self._on if worker not in self._leaving]
        return sorted(there, key=lambda worker: worker not in self._idle)

    def _turn_on(self, now_s: float) -> None:
        if self._leaving:
            self._leaving.remove(min(self._leaving))
            return
        worker = next(number for number in range(self._spec.workers) if number not in self._on)
        self._on[worker] = now_s
        self._come_up(worker, now_s + self._spec.restart_s)

    def _turn_off(self, worker: int, now_s: float) -> None:
        self._over_s += now_s - self._on.pop(worker)
        self._leaving.discard(worker)

    def _paid_s(self) -> float:
        return self._over_s + sum(self._now_s - since_s for since_s in self._on.values()) - self._down_s

    def _result(self, outlooks: Sequence[tuple[float, float, Outlook]]) -> JobRun:
        return replace(super()._result(outlooks), scaling=tuple(self._scaling))
