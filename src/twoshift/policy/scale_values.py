"""What a fleet looks like and what is decided for it, as values; and the bounds that a decision keeps."""

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
    """The batch backlog and its dedicated workers as they are now."""

    pending_items: int = 0
    worker_items_per_s: float = 0.0  # 0: not measured yet
    time_left_s: float = math.inf  # to the end of the window; negative when it is missed
    harvested_items_per_s: float = 0.0  # what the live fleet delivers, expected over the time left
    workers: int = 0  # running or starting
    asked_workers: int = 0  # that a job asks for while it runs

    def __post_init__(self) -> None:
        for name in ("pending_items", "worker_items_per_s", "harvested_items_per_s", "workers", "asked_workers"):
            check_at_least(name, getattr(self, name), 0)
        if math.isnan(self.time_left_s):
            raise InvalidInput("time_left_s", self.time_left_s, "seconds to the end of the window")


class Signal(enum.StrEnum):
    """What a decision followed from, in a word: for counting decisions."""

    FLOOR = "floor"
    JOBS = "jobs"  # rows of jobs need a replica, where there may be none
    RATE = "rate"
    BORROW = "borrow"  # batch rows give way: no replica is added
    KV = "kv"
    QUEUE = "queue"
    WAIT = "wait"
    REFUSED = "refused"
    COOLDOWN = "cooldown"  # it keeps what was needed lately, or has let it go
    IDLE = "idle"  # nothing is pending
    HARVEST = "harvest"  # the live replicas' idle time is enough
    UNMEASURED = "unmeasured"
    WINDOW = "window"
    ASKED = "asked"  # by a job
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class Scale:
    """How many there should be, how that differs from now, and why."""

    target: int
    change: int
    reason: str = field(compare=False)  # words may improve between releases: the decision is the rest
    signal: Signal


@dataclass(frozen=True, slots=True)
class FleetScale:
    """What to do with both shifts; the targets together fit the devices."""

    replicas: Scale
    workers: Scale

    @property
    def target(self) -> int:
        """Of a fleet whose replicas do the work of both."""
        return self.replicas.target + self.workers.target


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Bounds and triggers of an online endpoint."""

    min_replicas: int = 1  # 0: none where nobody needs one; the next caller then waits for a cold start
    max_replicas: int = 8
    cold_start_limit_s: float | None = None  # a longer cold start keeps a replica; None: there is no objective
    waiting_per_replica: int = 20
    longest_wait_s: float = 1.0
    refused_share: float = 0.01  # of what is offered
    kv_mark: float = 0.8
    target_load: float = 0.8  # of the measured capacity: what is left absorbs growth during a cold start
    borrow_load: float = 0.9  # of the capacity: up to there batch rows give way before a replica is added
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
    """Bounds of the dedicated batch workers and the margins their number is given."""

    quota: int = 8
    straggler_margin: float = 0.1
    preemptions_per_hour: float = 0.0  # of one worker
    shard_s: float = 60.0  # a preemption loses half of one on average
    start_s: float = 30.0
    cooldown_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("quota", "straggler_margin", "preemptions_per_hour", "shard_s", "start_s", "cooldown_s"):
            check_at_least(name, getattr(self, name), 0)
        if self.lost_share >= 1:
            accepted = "fewer preemptions: at this rate all work would be lost"
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
