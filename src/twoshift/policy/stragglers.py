"""Shards that take much longer than others, which idle workers start a second time."""

from __future__ import annotations

import heapq

from twoshift.policy.duration_histogram import RunningMedian
from twoshift.policy.leases import Lease, ShardLimits, Worker
from twoshift.policy.live_leases import MAX_COPIES, LiveLeases
from twoshift.policy.strikes import Strikes

__all__ = ["Stragglers"]


class Stragglers:
    """Shards with a single lease, longest-running first; collected after all new shards are leased."""

    def __init__(self, limits: ShardLimits, live: LiveLeases, strikes: Strikes) -> None:
        self._factor, self.is_on = limits.speculate_factor, limits.speculate
        self._live, self._strikes = live, strikes
        self._oldest: list[tuple[float, int]] = []  # heap: every lone lease that may get a second copy
        self._is_kept = False  # before that _oldest is not
        self.typical = RunningMedian()  # of the seconds from lease to commit

    def turn(self, on: bool) -> None:
        """Turn second copies on or off; running copies continue."""
        self.is_on, self._is_kept = on, False  # the queue was not kept while off: start it afresh

    def next(self, worker: Worker, now_s: float) -> tuple[int | None, float | None]:
        """The longest-running lone shard that is well past the typical time, or when there will be one.

        For idle workers only: behind a shard of its own that does not end, a copy would help nobody.
        """
        typical_s = self.typical.value
        if typical_s is None or not self.is_on or self._live.is_busy(worker):
            return None, None
        if not self._is_kept:
            self._start()
        # little evidence asks for more patience: twice as much after a single commit
        patience_s = self._factor * (1 + 1 / self.typical.count) * typical_s
        while self._oldest:
            started_s, lease_id = self._oldest[0]
            lease = self._live.get(lease_id)
            if lease is not None and self._may_copy(lease):
                due_s = started_s + patience_s
                return (lease.shard, None) if due_s <= now_s else (None, due_s)
            heapq.heappop(self._oldest)
        return None, None

    def watch(self, lease: Lease) -> None:
        """Watch the only lease of a shard."""
        if self._is_kept and self.is_on:
            heapq.heappush(self._oldest, (lease.started_s, lease.id))
            if len(self._oldest) > 2 * len(self._live) + 64:
                self._start()

    def validate(self) -> None:
        """Raises AssertionError if a lease that may be copied is not watched."""
        lone = {lease.id for lease in self._live if self._may_copy(lease)}
        assert not self._is_kept or lone <= {lease_id for _, lease_id in self._oldest}  # noqa: S101

    def _may_copy(self, lease: Lease) -> bool:
        return (
            self.is_on and self._live.copies(lease.shard) < MAX_COPIES and not self._strikes.is_exhausted(lease.shard)
        )

    def _start(self) -> None:
        """Starts the queue, or drops from it what has ended: rarely enough to be a constant cost a lease."""
        self._is_kept = True
        self._oldest = [(lease.started_s, lease.id) for lease in self._live if self._may_copy(lease)]
        heapq.heapify(self._oldest)
