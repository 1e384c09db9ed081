"""Number of workers of a job with a window: the smallest number that finishes in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.deadline import DeadlinePolicy

__all__ = ["JobScaleLimits", "JobScalePolicy", "WantedWorkers"]

_EVEN = 0.5  # a chance: before there is evidence nobody is surer


@dataclass(frozen=True, slots=True)
class JobScaleLimits:
    """Bounds of the number of workers, and the confidence that a change needs."""

    most: int
    load_s: float  # until a new worker takes its first shard
    grow_chance: float = 0.9  # of ending in time: below it workers are added
    release_chance: float = 0.98  # that fewer workers would have: from it on some are released
    fewest_shards: float = 4.0  # of evidence, before which a plan's or a few shards' word is not taken for sure

    def __post_init__(self) -> None:
        if self.most < 1:
            raise InvalidInput("most", self.most, "at least 1 worker")
        if not 0 <= self.load_s < math.inf:
            raise InvalidInput("load_s", self.load_s, "a finite number of seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class WantedWorkers:
    """A decision; `workers` is the current number if nothing should change."""

    workers: int
    why: str = ""


class JobScalePolicy:
    """Sizes a job by its DeadlinePolicy; after a change it waits until the new workers have shown their speed."""

    def __init__(self, deadline: DeadlinePolicy, limits: JobScaleLimits) -> None:
        self._deadline, self.limits = deadline, limits
        self._quiet_until_s = -math.inf

    def decide(self, remaining_items: float, workers: int, idle_shards: int, now_s: float) -> WantedWorkers:
        """Number of workers that the job should have; `idle_shards` is the number of shards without a worker."""
        as_now = WantedWorkers(workers)
        if now_s < self._quiet_until_s or remaining_items <= 0:
            return as_now
        limits, is_sure = self.limits, self._deadline.evidence >= self.limits.fewest_shards
        useful = min(limits.most, workers + idle_shards)  # more would find nothing to do
        more = self._needed(remaining_items, limits.grow_chance if is_sure else _EVEN, now_s, limits.load_s)
        if more > workers and useful > workers and self._deadline.deadline_s - now_s > limits.load_s:
            return self._changed(min(more, useful), "more workers are needed to finish in time", now_s)
        if not is_sure:
            return as_now
        fewer = self._needed(remaining_items, limits.release_chance, now_s, 0.0)
        return self._changed(fewer, "fewer workers are enough to finish in time", now_s) if fewer < workers else as_now

    def _needed(self, items: float, chance: float, now_s: float, lost_s: float) -> int:
        found = self._deadline.workers_for(items, chance, now_s + lost_s)
        return self.limits.most if found is None else max(1, min(found, self.limits.most))

    def _changed(self, workers: int, why: str, now_s: float) -> WantedWorkers:
        self._quiet_until_s = now_s + self.limits.load_s + 2 * self._deadline.mean_shard_s
        return WantedWorkers(workers, why)
