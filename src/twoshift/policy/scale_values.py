"""Values of scaling: the state of a fleet, decisions, and their bounds."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from twoshift.errors import InvalidInput

__all__ = [
    "BatchBacklog",
    "FleetScale",
    "ReplicaSettings",
    "Scale",
    "Signal",
    "WorkerSettings",
    "check_at_least",
]


@dataclass(frozen=True, slots=True)
class BatchBacklog:
    """The batch backlog and its dedicated workers now."""

    pending_items: int = 0
    worker_items_per_s: float = 0.0  # 0: not measured yet
    time_left_s: float = math.inf  # to the end of the window; negative when it is missed
    harvested_items_per_s: float = 0.0  # expected rate of the idle time of live replicas
    workers: int = 0  # running or starting
    asked_workers: int = 0  # workers that a running job requests

    def __post_init__(self) -> None:
        for name in ("pending_items", "worker_items_per_s", "harvested_items_per_s", "workers", "asked_workers"):
            check_at_least(name, getattr(self, name), 0)
        if math.isnan(self.time_left_s):
            raise InvalidInput("time_left_s", self.time_left_s, "the number of seconds until the end of the window")


class Signal(enum.StrEnum):
    """The signal behind a decision, in one word, for metrics."""

    FLOOR = "floor"
    JOBS = "jobs"  # jobs need a replica, and there is none
    RATE = "rate"
    BORROW = "borrow"  # batch rows are held back instead of adding a replica
    KV = "kv"
    QUEUE = "queue"
    WAIT = "wait"
    REFUSED = "refused"
    COOLDOWN = "cooldown"  # scaling down waits for the cooldown, or follows it
    IDLE = "idle"  # nothing is pending
    HARVEST = "harvest"  # the live replicas' idle time is enough
    UNMEASURED = "unmeasured"
    WINDOW = "window"
    ASKED = "asked"  # requested by a job
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class Scale:
    """The wanted number, its difference from now, and the reason."""

    target: int
    change: int
    reason: str = field(compare=False)  # not compared: wording may change between releases
    signal: Signal


@dataclass(frozen=True, slots=True)
class FleetScale:
    """Decisions for live replicas and batch workers; together they fit the devices."""

    replicas: Scale
    workers: Scale

    @property
    def target(self) -> int:
        """Of a fleet whose replicas do the work of both."""
        return self.replicas.target + self.workers.target


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Bounds and triggers of a live endpoint."""

    min_replicas: int = 1  # 0: no replica without load; the next request waits for a cold start
    max_replicas: int = 8
    cold_start_limit_s: float | None = None  # a longer cold start keeps a replica; None: there is no objective
    waiting_per_replica: int = 20
    longest_wait_s: float = 1.0
    refused_share: float = 0.01  # of the rows that clients send
    kv_mark: float = 0.8
    target_load: float = 0.8  # of the measured capacity; the rest absorbs growth during a cold start
    borrow_load: float = 0.9  # of the capacity: up to this, hold batch rows back before adding a replica
    cooldown_s: float = 300.0

    def __post_init__(self) -> None:
        check_at_least("min_replicas", self.min_replicas, 0)
        check_at_least("max_replicas", self.max_replicas, max(1, self.min_replicas))
        if self.cold_start_limit_s is not None:
            check_at_least("cold_start_limit_s", self.cold_start_limit_s, 0)
        check_at_least("waiting_per_replica", self.waiting_per_replica, 1)
        check_at_least("longest_wait_s", self.longest_wait_s, 0)
        check_at_least("cooldown_s", self.cooldown_s, 0)
        _check_share("refused_share", self.refused_share)
        _check_share("kv_mark", self.kv_mark)
        _check_share("target_load", self.target_load)
        _check_share("borrow_load", self.borrow_load)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Bounds and safety margins of dedicated batch workers."""

    quota: int = 8
    straggler_margin: float = 0.1
    preemptions_per_hour: float = 0.0  # of one worker
    shard_s: float = 60.0  # a preemption loses half a shard on average
    start_s: float = 30.0
    cooldown_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("quota", "straggler_margin", "preemptions_per_hour", "shard_s", "start_s", "cooldown_s"):
            check_at_least(name, getattr(self, name), 0)
        if self.lost_share >= 1:
            accepted = "fewer preemptions; at this rate all work would be lost"
            raise InvalidInput("preemptions_per_hour", self.preemptions_per_hour, accepted)

    @property
    def lost_share(self) -> float:
        """The share of a worker's time that preemptions waste: half a shard and a start each."""
        return self.preemptions_per_hour * (self.shard_s / 2 + self.start_s) / 3600

    @property
    def work_factor(self) -> float:
        """Work to provide for, as a multiple of the work there is."""
        return (1 + self.straggler_margin) / (1 - self.lost_share)


def check_at_least(name: str, value: float, least: float) -> None:
    """Raises InvalidInput that names it."""
    if not (math.isfinite(value) and value >= least):
        raise InvalidInput(name, value, f"a finite number of at least {least:g}")


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InvalidInput(name, value, "a share above 0 and up to 1")
