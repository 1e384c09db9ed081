"""What happened in a run of a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from twoshift.batch.part_stats import PartStats

__all__ = ["JobLog"]

_MOST_POINTS = 1000


@dataclass(slots=True)
class JobLog:
    """What happened in this run, for the report."""

    stats: list[PartStats] = field(default_factory=list[PartStats])  # of parts that this run has published
    committed: list[int] = field(default_factory=list[int])  # shards, by whomever
    deaths: list[str] = field(default_factory=list[str])
    failures: Counter[str] = field(default_factory=Counter[str])  # of shards, by message
    timeline: list[tuple[float, int, float]] = field(default_factory=list[tuple[float, int, float]])  # s, rows, busy
    notices: list[str] = field(default_factory=list[str])  # that a worker's machine would be taken away
    marks: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])  # seconds, and what happened
    every_s: float = 1.0  # between points of the timeline

    def commit(self, stats: PartStats, published: bool) -> None:
        """A shard is committed, by its worker or by another one that was sooner."""
        self.committed.append(stats.shard)
        if published:
            self.stats.append(stats)

    def add(self, elapsed_s: float, rows: int, busy_s: float) -> None:
        """A point of the timeline; every other one goes when there are many."""
        if self.timeline and elapsed_s < self.timeline[-1][0] + self.every_s:
            return
        self.timeline.append((elapsed_s, rows, busy_s))
        if len(self.timeline) > _MOST_POINTS:
            del self.timeline[1::2]
            self.every_s *= 2
