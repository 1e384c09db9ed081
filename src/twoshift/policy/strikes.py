"""What speaks against a shard: errors that it raised, and workers that were lost over it."""

from __future__ import annotations

from twoshift.policy.leases import ShardLimits

__all__ = ["Strikes"]


class Strikes:
    """They never fall."""

    def __init__(self, shards: int, limits: ShardLimits) -> None:
        self._limits = limits
        self._errors, self._deaths = bytearray(shards), bytearray(shards)

    def failed(self, shard: int, permanent: bool) -> None:
        """It raised an error; after a permanent one it is not tried again."""
        self._errors[shard] = self._limits.max_errors if permanent else self._errors[shard] + 1

    def died(self, shard: int) -> None:
        """A worker that had it was lost."""
        self._deaths[shard] += 1

    def is_exhausted(self, shard: int) -> bool:
        """Whether it is not tried again."""
        return self._errors[shard] >= self._limits.max_errors or self._deaths[shard] >= self._limits.max_deaths

    def backoff_s(self, shard: int) -> float:
        """Before it is tried again."""
        strikes = self._errors[shard] + self._deaths[shard]
        return min(self._limits.backoff_s * 2.0 ** (strikes - 1), self._limits.backoff_cap_s)
