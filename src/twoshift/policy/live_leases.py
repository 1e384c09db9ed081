"""The active leases: their shards, their workers, and which lease expires first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, KeysView
from dataclasses import replace

from twoshift.policy.leases import Lease, Worker

__all__ = ["MAX_COPIES", "LiveLeases"]

MAX_COPIES = 2  # leases of one shard


class LiveLeases:
    """All leases last equally long, so the lease that was granted or renewed last expires last."""

    def __init__(self) -> None:
        self._leases: OrderedDict[int, Lease] = OrderedDict()  # lease id -> lease, in order of expires_s
        self._of_shard: dict[int, tuple[int, ...]] = {}  # leased shard -> its 1 or 2 lease ids
        self._of_worker: dict[Worker, tuple[int, ...]] = {}  # worker -> its lease ids, never empty

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def get(self, lease_id: int) -> Lease | None:
        """The lease; None if it has ended."""
        return self._leases.get(lease_id)

    def find(self, lease: Lease) -> Lease | None:
        """The lease in its current state; None if it has ended."""
        live = self._leases.get(lease.id)
        if live is lease or live is None:
            return live
        # a lease from before a restart of the coordinator can carry an id that is in use again
        return live if (live.shard, live.worker) == (lease.shard, lease.worker) else None

    def first(self) -> Lease | None:
        """The lease that expires first."""
        return next(iter(self._leases.values())) if self._leases else None

    def shards(self) -> KeysView[int]:
        """The leased shards."""
        return self._of_shard.keys()

    def of_shard(self, shard: int) -> list[Lease]:
        """The leases of a shard: none, one or two."""
        return [self._leases[lease_id] for lease_id in self._of_shard.get(shard, ())]

    def of_worker(self, worker: Worker) -> list[Lease]:
        """The leases of a worker."""
        return [self._leases[lease_id] for lease_id in self._of_worker.get(worker, ())]

    def copies(self, shard: int) -> int:
        """Number of leases of a shard."""
        return len(self._of_shard.get(shard, ()))

    def is_busy(self, worker: Worker) -> bool:
        """Whether the worker has a lease."""
        return worker in self._of_worker

    def add(self, lease: Lease) -> None:
        """Add a lease."""
        self._leases[lease.id] = lease
        self._of_worker[lease.worker] = (*self._of_worker.get(lease.worker, ()), lease.id)
        self._of_shard[lease.shard] = (*self._of_shard.get(lease.shard, ()), lease.id)

    def renew(self, lease: Lease, expires_s: float) -> Lease:
        """Replace a lease by its renewed form."""
        renewed = self._leases[lease.id] = replace(lease, expires_s=expires_s)
        self._leases.move_to_end(lease.id)
        return renewed

    def remove(self, lease: Lease) -> Lease | None:
        """Remove a lease; returns the other lease of its shard, if there is one."""
        del self._leases[lease.id]
        held = self._of_worker.pop(lease.worker)
        if len(held) > 1:
            self._of_worker[lease.worker] = tuple(lease_id for lease_id in held if lease_id != lease.id)
        holders = self._of_shard.pop(lease.shard)
        if len(holders) == 1:
            return None
        left = holders[0] if holders[1] == lease.id else holders[1]
        self._of_shard[lease.shard] = (left,)
        return self._leases[left]

    def validate(self) -> None:
        """Raises AssertionError if an invariant of an attribute does not hold."""
        for known in (self._of_shard, self._of_worker):
            assert sorted(lease_id for ids in known.values() for lease_id in ids) == sorted(self._leases)  # noqa: S101
        assert all(1 <= len(ids) <= MAX_COPIES for ids in self._of_shard.values())  # noqa: S101
        for lease_id, lease in self._leases.items():
            assert lease.id == lease_id  # noqa: S101
            assert lease_id in self._of_shard[lease.shard]  # noqa: S101
            assert lease_id in self._of_worker[lease.worker]  # noqa: S101
        expiries = [lease.expires_s for lease in self._leases.values()]
        assert expiries == sorted(expiries)  # noqa: S101
