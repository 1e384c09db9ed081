"""Decides how many replicas and workers to add or remove, by leading signals, never by utilisation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from twoshift.policy.highest_need import HighestNeed
from twoshift.policy.replica_signals import Need, ReplicaState, ceil_to, needs
from twoshift.policy.scale_values import (
    BatchBacklog,
    FleetScale,
    ReplicaSettings,
    Scale,
    Signal,
    WorkerSettings,
    check_at_least,
)

__all__ = [
    "AutoscalePolicy",
    "BatchBacklog",
    "FleetScale",
    "FleetState",
    "ReplicaPolicy",
    "ReplicaSettings",
    "ReplicaState",
    "Scale",
    "Signal",
    "WorkerPolicy",
    "WorkerSettings",
]

_FOREVER_S = 1e9  # a job without a window has this long


@dataclass(frozen=True, slots=True)
class FleetState:
    """State of the live replicas and the batch workers, as far as scaling needs it."""

    replicas: ReplicaState
    workers: BatchBacklog = field(default_factory=BatchBacklog)


class ReplicaPolicy:
    """Sizes a live endpoint: scales up at once, and down to the highest need during the cooldown."""

    def __init__(self, settings: ReplicaSettings | None = None) -> None:
        self.settings = settings or ReplicaSettings()
        self.window = HighestNeed(self.settings.cooldown_s)

    def decide(self, state: ReplicaState, now_s: float) -> Scale:
        """Replicas to add or remove now; a replica is removed only if it was not needed for a whole cooldown."""
        present = state.ready + state.starting
        found = max(needs(state, self.settings), key=lambda each: each.count)
        need, why, signal = min(found.count, self.settings.max_replicas), found.why, found.signal
        if self.window.is_empty:
            # what is running was needed by somebody: a restarted autoscaler removes nothing at once
            self.window.add(min(present, self.settings.max_replicas), now_s)
        self.window.add(need, now_s)
        target = max(need, min(present, self.window.highest))
        if need < max(target, present):
            why, signal = f"{why}; {self.window}", Signal.COOLDOWN
        return _scale(target, present, why, signal)


class WorkerPolicy:
    """Sizes dedicated batch workers to finish within the window; zero workers if no job has rows to process."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        self.settings = settings or WorkerSettings()
        self.window = HighestNeed(self.settings.cooldown_s)

    def decide(self, state: BatchBacklog, now_s: float, devices: int | None = None) -> Scale:
        """Workers to add or remove now; `devices` is the number that the live replicas leave free."""
        limit = self.settings.quota if devices is None else max(0, min(self.settings.quota, devices))
        if state.pending_items == 0 and state.asked_workers == 0:
            self.window = HighestNeed(self.settings.cooldown_s)
            return _scale(0, state.workers, "no job has rows to process", Signal.IDLE)
        found = self._need(state)
        if state.asked_workers > found.count:
            why = f"the number of workers that running jobs ask for is {state.asked_workers}"
            found = Need(state.asked_workers, Signal.ASKED, why)
        wanted, why, signal = found.count, found.why, found.signal
        need = min(wanted, self.settings.quota)
        if self.window.is_empty:
            self.window.add(min(state.workers, self.settings.quota), now_s)
        self.window.add(need, now_s)
        target = max(need, min(state.workers, self.window.highest))
        if max(target, wanted) > limit:
            why, signal = f"{why}, but the quota and the live replicas leave room for only {limit}", Signal.QUOTA
        elif need < max(target, state.workers):
            why, signal = f"{why}; {self.window}", Signal.COOLDOWN
        return _scale(min(target, limit), state.workers, why, signal)

    def _need(self, state: BatchBacklog) -> Need:
        rate, left_s = state.worker_items_per_s, min(max(state.time_left_s, 0.0), _FOREVER_S)
        items = state.pending_items * self.settings.work_factor - state.harvested_items_per_s * left_s
        if items <= 0:
            why = (
                f"the idle time of the live replicas ({state.harvested_items_per_s:g} items/s) is enough to finish "
                "within the window"
            )
            return Need(0, Signal.HARVEST, why)
        if rate == 0:
            return Need(
                max(1, state.workers),
                Signal.UNMEASURED,
                "the throughput is not measured yet: one worker starts, to measure it",
            )
        need = min(self._to_finish(items / rate, left_s, state.workers), self._worth_starting(items / rate, state))
        return Need(
            need,
            Signal.WINDOW,
            f"{state.pending_items} items are pending and {left_s:g} s are left; with {rate:g} items/s per worker and "
            f"{state.harvested_items_per_s:g} items/s in idle time, the number of workers needed is {need}",
        )

    def _to_finish(self, work_s: float, left_s: float, workers: int) -> int:
        """Workers that do `work_s` of one worker's time in `left_s`, new ones after their start."""
        behind_s = work_s - workers * left_s
        if behind_s <= 0:
            return max(1, ceil_to(work_s / left_s, workers))
        useful_s = left_s - self.settings.start_s
        most = self.settings.quota + 1  # one more than allowed is enough to say that it will be late
        return most if useful_s <= 0 else max(1, workers + ceil_to(behind_s / useful_s, most))

    def _worth_starting(self, work_s: float, state: BatchBacklog) -> int:
        # a worker that would get less work than its own start takes is not worth starting
        return max(1, state.workers, ceil_to(work_s / max(self.settings.start_s, 1.0), self.settings.quota + 1))


class AutoscalePolicy:
    """Sizes live replicas and batch workers on one set of devices: live replicas first, batch workers with the rest."""

    def __init__(
        self,
        replicas: ReplicaSettings | None = None,
        workers: WorkerSettings | None = None,
        device_limit: int | None = None,  # None: each shift has devices of its own
        shared: bool = False,  # replicas beyond those that live load needs are the batch workers
    ) -> None:
        self.replicas = ReplicaPolicy(replicas)
        self.workers = WorkerPolicy(workers)
        self.device_limit, self.shared = device_limit, shared
        if device_limit is not None:
            check_at_least("device_limit", device_limit, self.replicas.settings.max_replicas)

    def decide(self, state: FleetState, now_s: float) -> FleetScale:
        """Decide for both; batch workers never count on a device that a live replica has or is about to get."""
        online = self.replicas.decide(state.replicas, now_s)
        backlog, held = state.workers, state.replicas.ready + state.replicas.starting
        if self.shared:
            backlog, held = _beyond(backlog, held, online.target), 0
        free = None if self.device_limit is None else max(0, self.device_limit - max(online.target, held))
        return FleetScale(online, self.workers.decide(backlog, now_s, free))

    @property
    def memory(self) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
        """State of the policy; a new policy with this state decides like this one."""
        return self.replicas.window.held, self.workers.window.held

    def remember(self, replicas: Iterable[tuple[float, int]], workers: Iterable[tuple[float, int]]) -> None:
        """Continue with the state of another policy."""
        self.replicas.window = HighestNeed(self.replicas.settings.cooldown_s, replicas)
        self.workers.window = HighestNeed(self.workers.settings.cooldown_s, workers)


def _beyond(backlog: BatchBacklog, present: int, online: int) -> BatchBacklog:
    """The backlog as the replicas see it that live load does not need: the others harvest in proportion."""
    extra = max(0, present - online)
    kept = (present - extra) / present if present else 1.0
    return replace(
        backlog,
        workers=extra,
        harvested_items_per_s=backlog.harvested_items_per_s * kept,
        asked_workers=max(0, backlog.asked_workers - online),
    )


def _scale(target: int, present: int, why: str, signal: Signal) -> Scale:
    change = target - present
    verb = f"add {change}" if change > 0 else f"remove {-change}" if change < 0 else f"keep {present}"
    return Scale(target, change, f"{verb}: {why}", signal)
