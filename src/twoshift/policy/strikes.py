"""Evidence against a shard: errors that it raised, and workers that died while they had it."""

from __future__ import annotations

from twoshift.policy.leases import ShardLimits

__all__ = ["Strikes"]


class Strikes:
    """Counts that never decrease."""

    def __init__(self, shards: int, limits: ShardLimits) -> None:
        self._limits = limits
        self._errors, self._deaths = bytearray(shards), bytearray(shards)

    def failed(self, shard: int, permanent: bool) -> None:
        """The shard raised an error; after a permanent error it is not tried again."""
        self._errors[shard] = self._limits.max_errors if permanent else self._errors[shard] + 1

    def died(self, shard: int) -> None:
        """A worker that had the shard died."""
        self._deaths[shard] += 1

    def is_exhausted(self, shard: int) -> bool:
        """Whether the shard is not tried again."""
        return self._errors[shard] >= self._limits.max_errors or self._deaths[shard] >= self._limits.max_deaths

    def backoff_s(self, shard: int) -> float:
        """Pause before the shard is tried again."""
        strikes = self._errors[shard] + self._deaths[shard]
        return min(self._limits.backoff_s * 2.0 ** (strikes - 1), self._limits.backoff_cap_s)
