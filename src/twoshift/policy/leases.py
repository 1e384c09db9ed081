"""Values that the shard policy and its driver exchange: leases, answers and counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from twoshift.errors import InvalidInput

__all__ = [
    "Abandon",
    "Committed",
    "Covered",
    "Dead",
    "Duplicate",
    "Ended",
    "Finished",
    "Lease",
    "Renewed",
    "Retry",
    "ShardCounts",
    "ShardLimits",
    "Stale",
    "Wait",
    "Worker",
]

Worker: TypeAlias = int | str

_MOST_STRIKES = 200  # strikes are kept in a byte, and a second copy may add one more


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """How long a lease lasts, how often a shard may fail, and when a slow shard gets a second copy."""

    lease_s: float = 60.0  # inf: leases never expire
    max_errors: int = 3
    max_deaths: int = 8  # more than max_errors: most workers die of something else than their shard
    backoff_s: float = 1.0  # doubles with every strike
    backoff_cap_s: float = 60.0
    speculate: bool = True
    speculate_factor: float = 1.5  # of the median shard's time

    def __post_init__(self) -> None:
        if not self.lease_s > 0:
            raise InvalidInput("lease_s", self.lease_s, "a number of seconds above 0")
        if not 1 <= self.max_errors <= _MOST_STRIKES:
            raise InvalidInput("max_errors", self.max_errors, f"a number from 1 to {_MOST_STRIKES}")
        if not self.max_errors <= self.max_deaths <= _MOST_STRIKES:
            raise InvalidInput("max_deaths", self.max_deaths, f"a number from `max_errors` to {_MOST_STRIKES}")
        if not 0 <= self.backoff_s < math.inf:
            raise InvalidInput("backoff_s", self.backoff_s, "a finite number of seconds, 0 or more")
        if not self.backoff_s <= self.backoff_cap_s < math.inf:
            raise InvalidInput("backoff_cap_s", self.backoff_cap_s, "a finite number of seconds, at least `backoff_s`")
        if not 1 <= self.speculate_factor < math.inf:
            raise InvalidInput("speculate_factor", self.speculate_factor, "a number of 1 or more")


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a shard until `expires_s`; pass it back with every event about the shard."""

    id: int
    shard: int
    worker: Worker
    attempt: int  # 1 for the first
    started_s: float
    expires_s: float
    speculative: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do for this worker now."""

    until_s: float | None  # None: until something happens to another lease


@dataclass(frozen=True, slots=True)
class Finished:
    """Every shard is committed or dead."""

    committed: int
    dead: int


@dataclass(frozen=True, slots=True)
class Renewed:
    lease: Lease


@dataclass(frozen=True, slots=True)
class Abandon:
    """The lease has ended: stop working on the shard."""

    shard: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The first completion of the shard; the leases in `cancel` are no longer needed."""

    shard: int
    cancel: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Another worker was first: discard the part."""

    shard: int


@dataclass(frozen=True, slots=True)
class Retry:
    """The shard is pending again from `ready_s` on."""

    shard: int
    ready_s: float


@dataclass(frozen=True, slots=True)
class Covered:
    """Another copy of the shard is still running."""

    shard: int


@dataclass(frozen=True, slots=True)
class Dead:
    """The shard has no attempts left; only a late completion can still commit it."""

    shard: int


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease had already ended; nothing changed."""

    shard: int


Ended: TypeAlias = Retry | Covered | Dead


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Number of shards in each state, and the number of events so far."""

    total: int
    committed: int  # including those found at the start
    dead: int
    leased: int
    pending: int
    attempts: int  # leases handed out
    retries: int  # leases of shards that had lost one
    speculated: int  # second copies
    speculated_won: int
    duplicates: int  # completions that came second
    late: int  # commits by leases that had ended
    errors: int
    deaths: int  # of workers holding a lease, expiry included
    released: int
    useful_s: float
    lost_s: float  # in leases that ended without a part
    duplicated_s: float  # in copies whose shard another lease committed

    @property
    def wasted_s(self) -> float:
        return self.lost_s + self.duplicated_s
