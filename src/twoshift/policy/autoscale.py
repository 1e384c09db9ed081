"""What the fleet looks like -> what to add or remove, by signals that lead and never by utilisation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twoshift.policy.highest_need import HighestNeed
from twoshift.policy.scale_values import (
    FleetScale,
    FleetState,
    ReplicaSettings,
    ReplicaState,
    Scale,
    Signal,
    WorkerSettings,
    WorkerState,
    check_at_least,
)

__all__ = [
    "AutoscalePolicy",
    "FleetScale",
    "FleetState",
    "ReplicaPolicy",
    "ReplicaSettings",
    "ReplicaState",
    "Scale",
    "Signal",
    "WorkerPolicy",
    "WorkerSettings",
    "WorkerState",
]

_FOREVER_S = 1e9  # a job without a window has this long
_ROUNDING = 1e-9  # 3 replicas that exactly suffice are not 4


@dataclass(frozen=True, slots=True)
class _Need:
    """What one signal asks for."""

    count: int
    signal: Signal
    why: str


class ReplicaPolicy:
    """Sizes an online endpoint: up at once, down to the highest need of the cool-down."""

    def __init__(self, settings: ReplicaSettings | None = None) -> None:
        self.settings = settings or ReplicaSettings()
        self.window = HighestNeed(self.settings.cooldown_s)

    def decide(self, state: ReplicaState, now_s: float) -> Scale:
        """What to add or remove now; a removal has not been needed for a whole cool-down."""
        present = state.ready + state.starting
        found = max(self._needs(state), key=lambda each: each.count)
        need, why, signal = min(found.count, self.settings.max_replicas), found.why, found.signal
        if self.window.is_empty:
            # what is running was needed by somebody: a restarted autoscaler removes nothing at once
            self.window.add(min(present, self.settings.max_replicas), now_s)
        self.window.add(need, now_s)
        target = max(need, min(present, self.window.highest))
        if need < max(target, present):
            why, signal = f"{why}; {self.window}", Signal.COOLDOWN
        return _scale(target, present, why, signal)

    def _needs(self, state: ReplicaState) -> list[_Need]:
        floor = self.settings.min_replicas
        return [
            self._by_rate(state),  # before the floor: of two that are the same it says more
            _Need(floor, Signal.FLOOR, f"the floor is {floor}"),
            self._by_kv(state),
            *self._by_queue(state),
        ]

    def _by_rate(self, state: ReplicaState) -> _Need:
        rate, each = state.live_rows_per_s, state.replica_rows_per_s
        if each == 0:
            need = int(rate > 0 or state.waiting > 0)
            return _Need(need, Signal.UNMEASURED, "there is traffic and no measured capacity yet")
        need = _ceil(rate / (each * self.settings.target_load), self.settings.max_replicas)
        present = state.ready + state.starting
        if need > present and _can_borrow(state, self.settings.borrow_load):
            why = f"{rate:g} rows/s fit {_replicas(state.ready)} as batch work gives way"
            return _Need(present, Signal.BORROW, why)
        return _Need(need, Signal.RATE, f"{rate:g} rows/s need {_replicas(need)} at {each:g} each")

    def _by_kv(self, state: ReplicaState) -> _Need:
        mark = self.settings.kv_mark
        need = _ceil(state.ready * state.kv_saturation / mark, self.settings.max_replicas)
        why = f"live sequences hold {state.kv_saturation:.0%} of the KV cache, the mark is {mark:.0%}"
        return _Need(need, Signal.KV, why)

    def _by_queue(self, state: ReplicaState) -> list[_Need]:
        needs: list[_Need] = []
        most, ready = self.settings.waiting_per_replica, state.ready
        if state.waiting:
            # a queue says that more is needed, not how much: it doubles at most
            need = min(_ceil(state.waiting / most, self.settings.max_replicas), max(1, 2 * ready))
            why = f"{state.waiting} requests wait on {_replicas(ready)}, more than {most} each"
            needs.append(_Need(need, Signal.QUEUE, why))
        if state.oldest_wait_s > self.settings.longest_wait_s:
            # batch work yields in milliseconds, so a wait this long is not its doing
            why = f"the oldest request has waited {state.oldest_wait_s:g} s"
            needs.append(_Need(ready + 1, Signal.WAIT, why))
        refused, offered = state.refused_rows_per_s, state.live_rows_per_s
        if refused > self.settings.refused_share * offered:
            served = max(offered - refused, offered / 2)  # it doubles at most, as a queue does
            need = max(ready + 1, _ceil(ready * offered / served, self.settings.max_replicas))
            why = f"{refused:g} of {offered:g} rows/s are refused on {_replicas(ready)}"
            needs.append(_Need(need, Signal.REFUSED, why))
        if state.starting:
            # help is on its way: the queue of a slow start keeps it, but calls for no second burst
            return [replace(need, count=min(need.count, ready + state.starting)) for need in needs]
        return needs


class WorkerPolicy:
    """Sizes dedicated batch workers to finish at the window, and to zero when nothing is pending."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        self.settings = settings or WorkerSettings()
        self.window = HighestNeed(self.settings.cooldown_s)

    def decide(self, state: WorkerState, now_s: float, devices: int | None = None) -> Scale:
        """What to add or remove now; `devices` is what the online replicas leave."""
        limit = self.settings.quota if devices is None else max(0, min(self.settings.quota, devices))
        if state.pending_items == 0:
            self.window = HighestNeed(self.settings.cooldown_s)
            return _scale(0, state.workers, "nothing is pending", Signal.IDLE)
        found = self._need(state)
        wanted, why, signal = found.count, found.why, found.signal
        need = min(wanted, self.settings.quota)
        if self.window.is_empty:
            self.window.add(min(state.workers, self.settings.quota), now_s)
        self.window.add(need, now_s)
        target = max(need, min(state.workers, self.window.highest))
        if max(target, wanted) > limit:
            why, signal = f"{why}, but the quota and the live replicas leave {limit}", Signal.QUOTA
        elif need < max(target, state.workers):
            why, signal = f"{why}; {self.window}", Signal.COOLDOWN
        return _scale(min(target, limit), state.workers, why, signal)

    def _need(self, state: WorkerState) -> _Need:
        rate, left_s = state.worker_items_per_s, min(max(state.time_left_s, 0.0), _FOREVER_S)
        items = state.pending_items * self.settings.work_factor - state.harvested_items_per_s * left_s
        if items <= 0:
            why = f"harvesting {state.harvested_items_per_s:g} items/s finishes inside the window"
            return _Need(0, Signal.HARVEST, why)
        if rate == 0:
            return _Need(max(1, state.workers), Signal.UNMEASURED, "no rate is measured yet: one worker measures it")
        need = min(self._to_finish(items / rate, left_s, state.workers), self._worth_starting(items / rate, state))
        return _Need(
            need,
            Signal.WINDOW,
            f"{state.pending_items} items pending, {left_s:g} s left, {rate:g} items/s a worker and "
            f"{state.harvested_items_per_s:g} harvested need {need} workers",
        )

    def _to_finish(self, work_s: float, left_s: float, workers: int) -> int:
        """Workers that do `work_s` of one worker's time in `left_s`, new ones after their start."""
        behind_s = work_s - workers * left_s
        if behind_s <= 0:
            return max(1, _ceil(work_s / left_s, workers))
        useful_s = left_s - self.settings.start_s
        most = self.settings.quota + 1  # one more than allowed is enough to say that it will be late
        return most if useful_s <= 0 else max(1, workers + _ceil(behind_s / useful_s, most))

    def _worth_starting(self, work_s: float, state: WorkerState) -> int:
        # a worker that would get less work than its own start takes is not worth starting
        return max(1, state.workers, _ceil(work_s / max(self.settings.start_s, 1.0), self.settings.quota + 1))


class AutoscalePolicy:
    """Both shifts on one set of devices: online takes what it needs, batch what is left."""

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
        """What to do with both; batch never counts on a device that an online replica holds or is due."""
        online = self.replicas.decide(state.replicas, now_s)
        backlog, held = state.workers, state.replicas.ready + state.replicas.starting
        if self.shared:
            backlog, held = _beyond(backlog, held, online.target), 0
        free = None if self.device_limit is None else max(0, self.device_limit - max(online.target, held))
        return FleetScale(online, self.workers.decide(backlog, now_s, free))

    @property
    def memory(self) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
        """What it remembers of the past, of replicas and of workers: another one that is told goes on as this one."""
        return self.replicas.window.held, self.workers.window.held

    def remember(self, replicas: Iterable[tuple[float, int]], workers: Iterable[tuple[float, int]]) -> None:
        """Go on as the policy whose memory this was."""
        self.replicas.window = HighestNeed(self.replicas.settings.cooldown_s, replicas)
        self.workers.window = HighestNeed(self.workers.settings.cooldown_s, workers)


def _beyond(backlog: WorkerState, present: int, online: int) -> WorkerState:
    """The backlog as the replicas see it that live load does not need: the others harvest in proportion."""
    extra = max(0, present - online)
    kept = (present - extra) / present if present else 1.0
    return replace(backlog, workers=extra, harvested_items_per_s=backlog.harvested_items_per_s * kept)


def _can_borrow(state: ReplicaState, borrow_load: float) -> bool:
    """Whether the live load fits the ready replicas once the batch rows on them give way."""
    room = borrow_load * state.ready * state.replica_rows_per_s
    return state.harvested_rows_per_s > 0 and state.live_rows_per_s <= room


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _scale(target: int, present: int, why: str, signal: Signal) -> Scale:
    change = target - present
    verb = f"add {change}" if change > 0 else f"remove {-change}" if change < 0 else f"hold {present}"
    return Scale(target, change, f"{verb}: {why}", signal)


def _ceil(value: float, most: int) -> int:
    return most if value >= most else math.ceil(value - _ROUNDING)
