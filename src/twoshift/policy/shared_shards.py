"""The shards of a plan that several processes share: this process leases only shards that it has claimed."""

from __future__ import annotations

from collections.abc import Iterable

from twoshift.policy.leases import ShardLimits
from twoshift.policy.shard_states import COMMITTED, DEAD, FRESH, HELD, LEASED
from twoshift.policy.shards import ShardPolicy

__all__ = ["SharedShardPolicy"]


class SharedShardPolicy(ShardPolicy):
    """A ShardPolicy that leases no shard before it is offered."""

    def __init__(self, shards: int, limits: ShardLimits | None = None, already_committed: Iterable[int] = ()) -> None:
        super().__init__(shards, limits, already_committed)
        for shard in self._states.all_in(FRESH):
            self._states[shard] = HELD

    def has_ready(self, now_s: float) -> bool:
        """Whether there is a shard to lease that no worker has."""
        retry_s = self._next_retry_s()
        return self._states.count(FRESH) > 0 or (retry_s is not None and retry_s <= now_s)

    def offer(self, shard: int) -> None:
        """This process has claimed the shard."""
        if self._states[shard] == HELD:
            self._states.renew(shard)

    def committed_elsewhere(self, shard: int, now_s: float) -> bool:
        """Its part is there; whether that is news. A worker that has it in work will say whose part it is."""
        if self._states[shard] in (COMMITTED, LEASED):
            return False
        self._commit(shard, self._tick(now_s))
        return True

    def dead_elsewhere(self, shard: int) -> None:
        """Another process could not do it; one that was offered here is tried here."""
        if self._states[shard] == HELD:
            self._states[shard] = DEAD
