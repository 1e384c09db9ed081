"""What a running fleet has counted, as the state that the autoscaler decides by."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twoshift.fleet.actuator import Actuator
from twoshift.policy.autoscale import BatchBacklog, FleetState, ReplicaState

__all__ = ["Backlog", "FleetObserver", "ModelCounts", "most_urgent"]

_RATE_S = 10.0  # over which rates are measured


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """A model over all of its replicas: totals since the start, and what is so now."""

    offered_rows: int  # live, refused ones included
    refused_rows: int  # of those: they would have been answered by a larger fleet
    harvested_rows: int  # of jobs
    answered_rows: int  # live
    answered_tokens: int  # of those
    replica_tokens_per_s: float  # inside the SLO, by one replica that does nothing else; 0: not known yet
    row_tokens: float  # of a typical row: a guess until there are some
    levels: Mapping[str, Any] = field(default_factory=dict[str, Any])  # signals as they are now, by their names

    def rows_per_s_since(self, before: ModelCounts | None) -> float:
        """What one replica can do of rows as long as those that came since; the curve knows tokens."""
        rows = self.answered_rows - (before.answered_rows if before else 0)
        tokens = self.answered_tokens - (before.answered_tokens if before else 0)
        return self.replica_tokens_per_s / (tokens / rows if rows > 0 and tokens > 0 else self.row_tokens)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a job has left."""

    pending_rows: int
    time_left_s: float  # of its window; infinite where it has none
    asked_workers: int = 0  # replicas that it asks for while it runs


class FleetObserver:
    """Totals to rates; called by one thread."""

    def __init__(
        self, model: Callable[[], ModelCounts], backlogs: Callable[[], Iterable[Backlog]], actuator: Actuator
    ) -> None:
        self._model, self._backlogs, self._actuator = model, backlogs, actuator
        self._points: deque[tuple[float, ModelCounts]] = deque()

    def observe(self, now_s: float) -> FleetState:
        """The fleet as it is, and what came lately."""
        now, counts = self._model(), self._actuator.replicas()
        if self._points and _has_fallen(self._points[-1][1], now):
            self._points.clear()  # who counted was replaced
        self._points.append((now_s, now))
        while len(self._points) > 2 and self._points[1][0] <= now_s - _RATE_S:
            self._points.popleft()
        backlogs = [*self._backlogs()]
        levels: dict[str, Any] = {name: _rounded(level) for name, level in now.levels.items()}
        replicas = ReplicaState(
            ready=counts.ready,
            starting=counts.starting,
            live_rows_per_s=self._rate("offered_rows"),
            refused_rows_per_s=self._rate("refused_rows"),
            replica_rows_per_s=_rounded(now.rows_per_s_since(self._points[0][1])),
            harvested_rows_per_s=self._rate("harvested_rows"),
            job_rows_left=sum(max(1, each.pending_rows) for each in backlogs),  # a job that begins or ends has one, too
            **levels,
        )
        urgent = most_urgent(backlogs)
        workers = BatchBacklog(
            pending_items=urgent.pending_rows,
            worker_items_per_s=replicas.replica_rows_per_s,
            time_left_s=_rounded(urgent.time_left_s),
            harvested_items_per_s=replicas.harvested_rows_per_s,
            asked_workers=sum(each.asked_workers for each in backlogs),
        )
        return FleetState(replicas, workers)

    def _rate(self, name: str) -> float:
        """Rows a second, since the first point."""
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        took_s = last_s - first_s
        return _rounded((getattr(last, name) - getattr(first, name)) / took_s) if took_s > 0 else 0.0


def most_urgent(backlogs: Iterable[Backlog]) -> Backlog:
    """Of the jobs with a window, those up to the one that asks for the highest rate, as one; none: nothing pending."""
    found, pending = Backlog(0, math.inf), 0
    for each in sorted(backlogs, key=lambda each: each.time_left_s):
        if each.time_left_s == math.inf:
            break
        pending += each.pending_rows
        if pending and pending * max(found.time_left_s, 1.0) > found.pending_rows * max(each.time_left_s, 1.0):
            found = Backlog(pending, each.time_left_s)
    return found


def _has_fallen(old: ModelCounts, new: ModelCounts) -> bool:
    names = ("offered_rows", "refused_rows", "harvested_rows", "answered_rows", "answered_tokens")
    return any(getattr(new, name) < getattr(old, name) for name in names)


def _rounded(value: float) -> float:
    """No more digits than mean something: they are logged."""
    return value if isinstance(value, int) or value in (0, math.inf) else float(f"{value:.4g}")
