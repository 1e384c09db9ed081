"""A worker as its coordinator knows it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from twoshift.batch.messages import WorkerHeartbeat
from twoshift.policy.leases import Lease

__all__ = ["WorkerState"]


@dataclass(slots=True)
class WorkerState:
    """What it has in work, and how it does."""

    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    has_room: bool = False  # it runs somewhere, and costs
    ready: bool = False
    at_once: int = 1  # shards that it reads at the same time
    unread: set[int] = field(default_factory=set[int])  # leases of shards that it still reads
    beat: WorkerHeartbeat | None = None
    moved_s: float = 0.0  # when its work last went on
    committed_s: float = -math.inf
    committed_rows: int = 0
    leaving: bool = False  # it is not needed any more, and ends what it has in work
    noticed: bool = False  # its machine will be taken away
    give_up_s: float = math.inf  # when it has to hand back what it has not ended by then
    ended: str | None = None  # why it was killed, its death not yet heard of

    def can_take(self) -> bool:
        """Whether it should have another shard: the next is read while the last rows of one are on the device."""
        has_room = len(self.unread) < self.at_once and len(self.leases) < 2 * self.at_once
        return self.ready and self.ended is None and not self.leaving and has_room

    def in_work_s(self, now_s: float) -> float:
        """For how long it has been at shards that are not committed: what would be lost with it."""
        begun_s = [max(lease.started_s, self.committed_s) for lease in self.leases.values()]
        return now_s - min(begun_s, default=now_s)

    def take(self, lease: Lease) -> None:
        """It has another shard."""
        self.leases[lease.id] = lease
        self.unread.add(lease.id)

    def give_back(self, lease: int) -> Lease | None:
        """It has the shard no more; None where it had lost it before."""
        self.unread.discard(lease)
        return self.leases.pop(lease, None)
