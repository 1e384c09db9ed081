"""What a running fleet has counted, as the state that the autoscaler decides by."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from twoshift.policy.autoscale import FleetState, ReplicaState, WorkerState
from twoshift.ports import Actuator

__all__ = ["Backlog", "FleetObserver", "ModelCounts", "most_urgent"]

_RATE_S = 10.0  # over which rates are measured


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """One model over all replicas: totals since the start, and what is so now."""

    offered_rows: int  # live, refused ones included
    refused_rows: int  # of those: they would have been answered by a larger fleet
    harvested_rows: int  # of jobs
    waiting: int  # live
    oldest_wait_s: float
    replica_rows_per_s: float  # inside the SLO, by one replica that does nothing else; 0: not known yet


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a job has left."""

    pending_rows: int
    time_left_s: float  # of its window; infinite where it has none


@dataclass(frozen=True, slots=True)
class _Point:
    at_s: float
    models: tuple[ModelCounts, ...]


class FleetObserver:
    """Totals to rates, models to one fleet; called by one thread."""

    def __init__(
        self,
        models: Callable[[], Sequence[ModelCounts]],  # the same models in the same order, every time
        backlogs: Callable[[], Iterable[Backlog]],
        actuator: Actuator,
    ) -> None:
        self._models, self._backlogs, self._actuator = models, backlogs, actuator
        self._points: deque[_Point] = deque()

    def observe(self, now_s: float) -> FleetState:
        """The fleet as it is, and what came lately."""
        now = _Point(now_s, tuple(self._models()))
        if self._points and _has_fallen(self._points[-1], now):
            self._points.clear()  # who counted was replaced
        self._points.append(now)
        while len(self._points) > 2 and self._points[1].at_s <= now_s - _RATE_S:
            self._points.popleft()
        counts, rates = self._actuator.counts(), self._rates
        offered = rates("offered_rows")
        replica_rows_per_s = _of_the_mix(offered, [each.replica_rows_per_s for each in now.models])
        harvested = sum(rates("harvested_rows"))
        replicas = ReplicaState(
            ready=counts.ready,
            starting=counts.starting,
            waiting=sum(each.waiting for each in now.models),
            oldest_wait_s=_rounded(max((each.oldest_wait_s for each in now.models), default=0.0)),
            live_rows_per_s=_rounded(sum(offered)),
            refused_rows_per_s=_rounded(sum(rates("refused_rows"))),
            replica_rows_per_s=_rounded(replica_rows_per_s),
            harvested_rows_per_s=_rounded(harvested),
        )
        urgent = most_urgent(self._backlogs())
        workers = WorkerState(
            pending_items=urgent.pending_rows,
            worker_items_per_s=_rounded(replica_rows_per_s),
            time_left_s=_rounded(urgent.time_left_s),
            harvested_items_per_s=_rounded(harvested),
        )
        return FleetState(replicas, workers)

    def _rates(self, name: str) -> list[float]:
        """Of each model, since the first point."""
        first, last = self._points[0], self._points[-1]
        took_s = last.at_s - first.at_s
        counted = zip(first.models, last.models, strict=True)
        return [(getattr(new, name) - getattr(old, name)) / took_s if took_s > 0 else 0.0 for old, new in counted]


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


def _has_fallen(old: _Point, new: _Point) -> bool:
    names = ("offered_rows", "refused_rows", "harvested_rows")
    counted = zip(old.models, new.models, strict=True)
    return any(getattr(after, name) < getattr(before, name) for before, after in counted for name in names)


def _of_the_mix(rates: Sequence[float], capacities: Sequence[float]) -> float:
    """Rows a second of one replica when its models are asked for in this proportion; 0 where one is not known."""
    asked = [(rate, capacity) for rate, capacity in zip(rates, capacities, strict=True) if rate > 0]
    if not asked:
        return min(capacities, default=0.0)
    if any(capacity <= 0 for _, capacity in asked):
        return 0.0
    return sum(rate for rate, _ in asked) / sum(rate / capacity for rate, capacity in asked)


def _rounded(value: float) -> float:
    """No more digits than mean something: they are logged."""
    return value if value in (0, math.inf) else float(f"{value:.6g}")
