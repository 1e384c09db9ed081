"""What the fleet looks like -> what to add or remove, by signals that lead and never by utilisation."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from twoshift.errors import InvalidInput

__all__ = [
    "AutoscalePolicy",
    "FleetScale",
    "FleetState",
    "ReplicaPolicy",
    "ReplicaSettings",
    "ReplicaState",
    "Scale",
    "WorkerPolicy",
    "WorkerSettings",
    "WorkerState",
]

_FOREVER_S = 1e9  # a job without a window has this long
_ROUNDING = 1e-9  # 3 replicas that exactly suffice are not 4


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """An SLO-bound endpoint as it is now; replicas that drain are in neither count."""

    ready: int
    starting: int = 0
    waiting: int = 0  # live requests queued, over all replicas
    oldest_wait_s: float = 0.0
    kv_saturation: float = 0.0  # share that live sequences hold: background gives its own back
    live_rows_per_s: float = 0.0  # offered, refused ones included
    refused_rows_per_s: float = 0.0  # early refusal keeps the queue short: these are the queue that did not form
    replica_rows_per_s: float = 0.0  # measured capacity of one replica inside the SLO; 0: not measured yet
    harvested_rows_per_s: float = 0.0  # batch rows that ride on the ready replicas

    def __post_init__(self) -> None:
        for name in ("ready", "starting", "waiting", "oldest_wait_s", "kv_saturation"):
            _check_at_least(name, getattr(self, name), 0)
        for name in ("live_rows_per_s", "refused_rows_per_s", "replica_rows_per_s", "harvested_rows_per_s"):
            _check_at_least(name, getattr(self, name), 0)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The batch backlog and its dedicated workers as they are now."""

    pending_items: int = 0
    worker_items_per_s: float = 0.0  # 0: not measured yet
    time_left_s: float = math.inf  # to the end of the window; negative when it is missed
    harvested_items_per_s: float = 0.0  # what the live fleet delivers, expected over the time left
    workers: int = 0  # running or starting

    def __post_init__(self) -> None:
        for name in ("pending_items", "worker_items_per_s", "harvested_items_per_s", "workers"):
            _check_at_least(name, getattr(self, name), 0)
        if math.isnan(self.time_left_s):
            raise InvalidInput("time_left_s", self.time_left_s, "seconds to the end of the window")


@dataclass(frozen=True, slots=True)
class FleetState:
    """Both shifts, as far as scaling is concerned."""

    replicas: ReplicaState
    workers: WorkerState = field(default_factory=WorkerState)


@dataclass(frozen=True, slots=True)
class Scale:
    """How many there should be, how that differs from now, and why."""

    target: int
    change: int
    reason: str


@dataclass(frozen=True, slots=True)
class FleetScale:
    """What to do with both shifts; the targets together fit the devices."""

    replicas: Scale
    workers: Scale


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Bounds and triggers of an online endpoint."""

    min_replicas: int = 1
    max_replicas: int = 8
    allow_zero: bool = False  # a cold start then meets a caller: only where there is no SLO
    waiting_per_replica: int = 20
    longest_wait_s: float = 1.0
    refused_share: float = 0.01  # of what is offered
    kv_mark: float = 0.8
    target_load: float = 0.8  # of the measured capacity: what is left absorbs growth during a cold start
    borrow_load: float = 0.9  # of the capacity: up to there batch rows give way before a replica is added
    cooldown_s: float = 300.0

    def __post_init__(self) -> None:
        least = 0 if self.allow_zero else 1
        _check_at_least("min_replicas", self.min_replicas, least)
        _check_at_least("max_replicas", self.max_replicas, max(1, self.min_replicas))
        _check_at_least("waiting_per_replica", self.waiting_per_replica, 1)
        _check_at_least("longest_wait_s", self.longest_wait_s, 0)
        _check_at_least("cooldown_s", self.cooldown_s, 0)
        _check_share("refused_share", self.refused_share)
        _check_share("kv_mark", self.kv_mark)
        _check_share("target_load", self.target_load)
        _check_share("borrow_load", self.borrow_load)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Bounds of the dedicated batch workers and the margins their number is given."""

    quota: int = 8
    straggler_margin: float = 0.1
    preemptions_per_hour: float = 0.0  # of one worker
    shard_s: float = 60.0  # a preemption loses half of one on average
    start_s: float = 30.0
    cooldown_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("quota", "straggler_margin", "preemptions_per_hour", "shard_s", "start_s", "cooldown_s"):
            _check_at_least(name, getattr(self, name), 0)
        if self.lost_share >= 1:
            accepted = "fewer: at this rate preemptions lose all of the work"
            raise InvalidInput("preemptions_per_hour", self.preemptions_per_hour, accepted)

    @property
    def lost_share(self) -> float:
        """The share of a worker's time that preemptions waste: half a shard and a start each."""
        return self.preemptions_per_hour * (self.shard_s / 2 + self.start_s) / 3600

    @property
    def work_factor(self) -> float:
        """Work to provide for, as a multiple of the work there is."""
        return (1 + self.straggler_margin) / (1 - self.lost_share)


class ReplicaPolicy:
    """Sizes an online endpoint: up at once, down to the highest need of the cool-down."""

    def __init__(self, settings: ReplicaSettings | None = None) -> None:
        self.settings = settings or ReplicaSettings()
        self._window = _HighestNeed(self.settings.cooldown_s)

    def decide(self, state: ReplicaState, now_s: float) -> Scale:
        """What to add or remove now; a removal has not been needed for a whole cool-down."""
        present = state.ready + state.starting
        need, why = max(self._needs(state), key=lambda each: each[0])
        need = min(need, self.settings.max_replicas)
        if self._window.is_empty:
            # what is running was needed by somebody: a restarted autoscaler removes nothing at once
            self._window.add(min(present, self.settings.max_replicas), now_s)
        self._window.add(need, now_s)
        target = max(need, min(present, self._window.highest))
        if need < max(target, present):
            why = f"{why}; {self._window}"
        return _scale(target, present, why)

    def _needs(self, state: ReplicaState) -> list[tuple[int, str]]:
        floor = self.settings.min_replicas
        return [
            (floor, f"the floor is {floor}"),
            self._by_rate(state),
            self._by_kv(state),
            *self._by_queue(state),
        ]

    def _by_rate(self, state: ReplicaState) -> tuple[int, str]:
        rate, each = state.live_rows_per_s, state.replica_rows_per_s
        if each == 0:
            return int(rate > 0 or state.waiting > 0), "there is traffic and no measured capacity yet"
        need = _ceil(rate / (each * self.settings.target_load), self.settings.max_replicas)
        present = state.ready + state.starting
        if need > present and _can_borrow(state, self.settings.borrow_load):
            return present, f"{rate:g} rows/s fit the {state.ready} ready replicas as batch work gives way"
        return need, f"{rate:g} rows/s need {need} replicas at {each:g} each"

    def _by_kv(self, state: ReplicaState) -> tuple[int, str]:
        mark = self.settings.kv_mark
        need = _ceil(state.ready * state.kv_saturation / mark, self.settings.max_replicas)
        return need, f"live sequences hold {state.kv_saturation:.0%} of the KV cache, the mark is {mark:.0%}"

    def _by_queue(self, state: ReplicaState) -> list[tuple[int, str]]:
        needs: list[tuple[int, str]] = []
        most, ready = self.settings.waiting_per_replica, state.ready
        if state.waiting:
            # a queue says that more is needed, not how much: it doubles at most
            need = min(_ceil(state.waiting / most, self.settings.max_replicas), max(1, 2 * ready))
            needs.append((need, f"{state.waiting} requests wait on {ready} replicas, more than {most} each"))
        if state.oldest_wait_s > self.settings.longest_wait_s:
            # batch work yields in milliseconds, so a wait this long is not its doing
            needs.append((ready + 1, f"the oldest request has waited {state.oldest_wait_s:g} s"))
        refused, offered = state.refused_rows_per_s, state.live_rows_per_s
        if refused > self.settings.refused_share * offered:
            served = max(offered - refused, offered / 2)  # it doubles at most, as a queue does
            need = max(ready + 1, _ceil(ready * offered / served, self.settings.max_replicas))
            needs.append((need, f"{refused:g} of {offered:g} rows/s are refused on {ready} replicas"))
        if state.starting:
            # help is on its way: the queue of a slow start keeps it, but calls for no second burst
            return [(min(need, ready + state.starting), why) for need, why in needs]
        return needs


class WorkerPolicy:
    """Sizes dedicated batch workers to finish at the window, and to zero when nothing is pending."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        self.settings = settings or WorkerSettings()
        self._window = _HighestNeed(self.settings.cooldown_s)

    def decide(self, state: WorkerState, now_s: float, devices: int | None = None) -> Scale:
        """What to add or remove now; `devices` is what the online replicas leave."""
        limit = self.settings.quota if devices is None else max(0, min(self.settings.quota, devices))
        if state.pending_items == 0:
            self._window = _HighestNeed(self.settings.cooldown_s)
            return _scale(0, state.workers, "nothing is pending")
        wanted, why = self._need(state)
        need = min(wanted, self.settings.quota)
        if self._window.is_empty:
            self._window.add(min(state.workers, self.settings.quota), now_s)
        self._window.add(need, now_s)
        target = max(need, min(state.workers, self._window.highest))
        if max(target, wanted) > limit:
            why = f"{why}, but the quota and the live replicas leave {limit}"
        elif need < max(target, state.workers):
            why = f"{why}; {self._window}"
        return _scale(min(target, limit), state.workers, why)

    def _need(self, state: WorkerState) -> tuple[int, str]:
        rate, left_s = state.worker_items_per_s, min(max(state.time_left_s, 0.0), _FOREVER_S)
        items = state.pending_items * self.settings.work_factor - state.harvested_items_per_s * left_s
        if items <= 0:
            return 0, f"harvesting {state.harvested_items_per_s:g} items/s finishes inside the window"
        if rate == 0:
            return max(1, state.workers), "no rate is measured yet: one worker measures it"
        need = min(self._to_finish(items / rate, left_s, state.workers), self._worth_starting(items / rate, state))
        return need, (
            f"{state.pending_items} items pending, {left_s:g} s left, {rate:g} items/s a worker and "
            f"{state.harvested_items_per_s:g} harvested need {need} workers"
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
    """Both shifts on one set of devices: online takes what it needs, batch what is left (R4.5)."""

    def __init__(
        self,
        replicas: ReplicaSettings | None = None,
        workers: WorkerSettings | None = None,
        device_limit: int | None = None,  # None: each shift has devices of its own
    ) -> None:
        self.replicas = ReplicaPolicy(replicas)
        self.workers = WorkerPolicy(workers)
        self.device_limit = device_limit
        if device_limit is not None:
            _check_at_least("device_limit", device_limit, self.replicas.settings.max_replicas)

    def decide(self, state: FleetState, now_s: float) -> FleetScale:
        """What to do with both; batch never counts on a device that an online replica holds or is due."""
        online = self.replicas.decide(state.replicas, now_s)
        free = None
        if self.device_limit is not None:
            held = state.replicas.ready + state.replicas.starting
            free = max(0, self.device_limit - max(online.target, held))
        return FleetScale(online, self.workers.decide(state.workers, now_s, free))


class _HighestNeed:
    """The highest need over the last `span_s`; memory is bounded by the number of distinct needs."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._needs: deque[tuple[float, int]] = deque()  # (last held, need), needs strictly decreasing

    @property
    def is_empty(self) -> bool:
        return not self._needs

    @property
    def highest(self) -> int:
        return self._needs[0][1]

    def __str__(self) -> str:
        return f"the highest need of the last {self._span_s:g} s is {self.highest}"

    def add(self, need: int, now_s: float) -> None:
        if self._needs:
            last_s, last = self._needs[-1]
            now_s = max(now_s, last_s)
            # nothing says that the last need ended before now: a gap in the observations is no evidence
            self._needs[-1] = (now_s, last)
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now_s, need))
        while len(self._needs) > 1 and self._needs[0][0] <= now_s - self._span_s:
            self._needs.popleft()


def _can_borrow(state: ReplicaState, borrow_load: float) -> bool:
    """Whether the live load fits the ready replicas once the batch rows on them give way."""
    room = borrow_load * state.ready * state.replica_rows_per_s
    return state.harvested_rows_per_s > 0 and state.live_rows_per_s <= room


def _scale(target: int, present: int, why: str) -> Scale:
    change = target - present
    verb = f"add {change}" if change > 0 else f"remove {-change}" if change < 0 else f"hold {present}"
    return Scale(target, change, f"{verb}: {why}")


def _ceil(value: float, most: int) -> int:
    return most if value >= most else math.ceil(value - _ROUNDING)


def _check_at_least(name: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise InvalidInput(name, value, f"a finite number of at least {least:g}")


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InvalidInput(name, value, "a share above 0 and up to 1")
