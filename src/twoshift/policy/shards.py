"""A shard's life: pending -> leased -> committed | retry | dead; and second copies of slow ones.

The part's existence is the commit, so a completion always counts, however late it comes: the first one
wins, all others are duplicates.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from twoshift.policy.leases import (
    Abandon,
    Committed,
    Covered,
    Dead,
    Duplicate,
    Ended,
    Finished,
    Lease,
    Renewed,
    Retry,
    ShardCounts,
    ShardLimits,
    Stale,
    Wait,
    Worker,
)
from twoshift.policy.live_leases import LiveLeases
from twoshift.policy.shard_states import COMMITTED, DEAD, FRESH, HELD, LEASED, RETRY, ShardStates
from twoshift.policy.stragglers import Stragglers
from twoshift.policy.strikes import Strikes

__all__ = ["ShardPolicy"]


class ShardPolicy:
    """Leases the shards of a plan to workers until each shard is committed or dead."""

    def __init__(self, shards: int, limits: ShardLimits | None = None, already_committed: Iterable[int] = ()) -> None:
        self.limits = limits or ShardLimits()
        self._now_s = -math.inf  # the latest time seen; never goes back
        self._states = ShardStates(shards)
        self._strikes = Strikes(shards, self.limits)
        self._attempts = array("I", bytes(shards * array("I").itemsize))  # leases of a shard so far
        self._retries: list[tuple[float, int]] = []  # heap: one entry a RETRY shard, others are committed
        self._live = LiveLeases()
        self._stragglers = Stragglers(self.limits, self._live, self._strikes)
        self._due_s = -math.inf  # no live lease expires before it
        self._next_id = 0  # above every id handed out
        self._tally = _Tally()
        for shard in already_committed:
            self._states.check(shard)
            self._states[shard] = COMMITTED

    def lease(self, worker: Worker, now_s: float) -> Lease | Wait | Finished:
        """A shard for a worker: a due retry, else the next new shard, else a second copy of a slow one."""
        now_s = self._tick(now_s)
        if now_s >= self._due_s:
            self.expire(now_s)
        shard = self._take(now_s)
        if shard is not None:
            return self._grant(shard, worker, now_s, speculative=False)
        committed, dead = self._states.count(COMMITTED), self._states.count(DEAD)
        if committed + dead == len(self._states):
            return Finished(committed, dead)
        slow, until_s = self._stragglers.next(worker, now_s)
        if slow is not None:
            return self._grant(slow, worker, now_s, speculative=True)
        first = self._live.first()
        times_s = (self._next_retry_s(), until_s, first.expires_s if first else None)
        return Wait(min((at_s for at_s in times_s if at_s is not None and at_s < math.inf), default=None))

    def renew(self, lease: Lease, now_s: float) -> Renewed | Abandon:
        """Extend an active lease by another `lease_s`."""
        now_s = self._tick(now_s)
        live = self._find(lease)
        if live is None or live.expires_s <= now_s:
            return Abandon(lease.shard)
        return Renewed(self._live.renew(live, now_s + self.limits.lease_s))

    def completed(self, lease: Lease, now_s: float) -> Committed | Duplicate:
        """The worker has published the shard's part, or found it published."""
        now_s = self._tick(now_s)
        live = self._find(lease)
        if self._states[lease.shard] == COMMITTED:
            self._tally.duplicates += 1
            return Duplicate(lease.shard)
        if live is None:
            self._tally.late += 1
        else:
            self._remove(live)
            self._stragglers.typical.add(now_s - live.started_s)
            self._tally.useful_s += now_s - live.started_s
            self._tally.speculated_won += live.speculative
        return self._commit(lease.shard, now_s)

    def failed(self, lease: Lease, now_s: float, *, permanent: bool = False) -> Ended | Stale:
        """The shard raised an error; after a permanent error it is not tried again."""
        now_s = self._tick(now_s)
        live = self._find(lease)
        if live is None:
            return Stale(lease.shard)
        self._tally.errors += 1
        self._strikes.failed(live.shard, permanent)
        return self._lost(live, now_s, self._strikes.backoff_s(live.shard))

    def released(self, lease: Lease, now_s: float) -> Ended | Stale:
        """The worker returned the shard, for example after a preemption notice; not the shard's fault."""
        now_s = self._tick(now_s)
        live = self._find(lease)
        return Stale(lease.shard) if live is None else self._released(live, now_s)

    def worker_left(self, worker: Worker, now_s: float) -> list[Ended]:
        """The worker was preempted or drained: all its shards are returned, without blame."""
        now_s = self._tick(now_s)
        return [self._released(lease, now_s) for lease in self._live.of_worker(worker)]

    def worker_died(self, worker: Worker, now_s: float) -> list[Ended]:
        """The worker died for an unknown reason: one of its shards may have caused it."""
        now_s = self._tick(now_s)
        return [self._orphaned(lease, now_s) for lease in self._live.of_worker(worker)]

    def expire(self, now_s: float) -> list[Ended]:
        """Take back every expired lease; `lease` does so, too."""
        now_s = self._tick(now_s)
        ended: list[Ended] = []
        while (first := self._live.first()) and first.expires_s <= now_s:
            ended.append(self._orphaned(first, now_s))
        self._due_s = first.expires_s if first else now_s + self.limits.lease_s
        return ended

    def set_speculation(self, on: bool) -> None:
        """Turn second copies on or off from now on; running copies continue."""
        self._stragglers.turn(on)

    def dead_shards(self) -> list[int]:
        return self._states.all_in(DEAD)

    @property
    def typical_s(self) -> float | None:
        """Median time from lease to commit."""
        return self._stragglers.typical.value

    def counts(self) -> ShardCounts:
        states, tally = self._states, self._tally
        return ShardCounts(
            total=len(states),
            committed=states.count(COMMITTED),
            dead=states.count(DEAD),
            leased=states.count(LEASED),
            pending=states.count(FRESH) + states.count(RETRY) + states.count(HELD),
            attempts=self._next_id,
            retries=tally.retries,
            speculated=tally.speculated,
            speculated_won=tally.speculated_won,
            duplicates=tally.duplicates,
            late=tally.late,
            errors=tally.errors,
            deaths=tally.deaths,
            released=tally.released,
            useful_s=tally.useful_s,
            lost_s=tally.lost_s,
            duplicated_s=tally.duplicated_s,
        )

    def validate(self) -> None:
        """Checks every attribute's invariant; for tests.

        Raises AssertionError.
        """
        for part in (self._states, self._live, self._stragglers):
            part.validate()
        _ensure(sorted(self._live.shards()), self._states.all_in(LEASED))
        _ensure(all(lease.expires_s >= self._due_s for lease in self._live), True)
        waiting = self._states.all_in(RETRY)
        _ensure(sorted(shard for _, shard in self._retries if self._states[shard] == RETRY), waiting)
        left = {self._states[shard] for _, shard in self._retries}
        _ensure(left <= {RETRY, COMMITTED}, True)
        _ensure(sum(self._attempts), self._next_id)
        _ensure([shard for shard in waiting if self._strikes.is_exhausted(shard)], [])

    def _tick(self, now_s: float) -> float:
        # a clock that steps back must not put leases out of their order of expiry
        if now_s > self._now_s:
            self._now_s = now_s
        return self._now_s

    def _find(self, lease: Lease) -> Lease | None:
        self._states.check(lease.shard)
        return self._live.find(lease)

    def _take(self, now_s: float) -> int | None:
        retry_s = self._next_retry_s()
        if retry_s is not None and retry_s <= now_s:
            self._tally.retries += 1
            return heapq.heappop(self._retries)[1]
        return self._states.next_fresh()

    def _next_retry_s(self) -> float | None:
        while self._retries:
            ready_s, shard = self._retries[0]
            if self._states[shard] == RETRY:
                return ready_s
            heapq.heappop(self._retries)  # committed by a late completion in the meantime
        return None

    def _grant(self, shard: int, worker: Worker, now_s: float, *, speculative: bool) -> Lease:
        id_ = self._next_id
        self._next_id += 1
        self._attempts[shard] += 1
        lease = Lease(id_, shard, worker, self._attempts[shard], now_s, now_s + self.limits.lease_s, speculative)
        self._live.add(lease)
        self._states[shard] = LEASED
        if speculative:
            self._tally.speculated += 1
        else:
            self._stragglers.watch(lease)
        return lease

    def _commit(self, shard: int, now_s: float) -> Committed:
        losers = tuple(self._live.of_shard(shard))
        for loser in losers:
            self._remove(loser)
            self._tally.duplicated_s += now_s - loser.started_s
        self._states[shard] = COMMITTED
        return Committed(shard, losers)

    def _remove(self, lease: Lease) -> None:
        if (left := self._live.remove(lease)) is not None:
            self._stragglers.watch(left)

    def _released(self, lease: Lease, now_s: float) -> Ended:
        self._tally.released += 1
        return self._lost(lease, now_s, backoff_s=0.0)

    def _orphaned(self, lease: Lease, now_s: float) -> Ended:
        self._tally.deaths += 1
        self._strikes.died(lease.shard)
        return self._lost(lease, now_s, self._strikes.backoff_s(lease.shard))

    def _lost(self, lease: Lease, now_s: float, backoff_s: float) -> Ended:
        shard = lease.shard
        self._remove(lease)
        self._tally.lost_s += now_s - lease.started_s
        if self._live.copies(shard):
            return Covered(shard)
        if self._strikes.is_exhausted(shard):
            self._states[shard] = DEAD
            return Dead(shard)
        self._states[shard] = RETRY
        heapq.heappush(self._retries, (now_s + backoff_s, shard))
        return Retry(shard, now_s + backoff_s)


@dataclass(slots=True)
class _Tally:
    """Counters of the policy; see ShardCounts."""

    retries: int = 0
    speculated: int = 0
    speculated_won: int = 0
    duplicates: int = 0
    late: int = 0
    errors: int = 0
    deaths: int = 0
    released: int = 0
    useful_s: float = 0.0
    lost_s: float = 0.0
    duplicated_s: float = 0.0


def _ensure(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"expected {expected!r}, got {actual!r}")
