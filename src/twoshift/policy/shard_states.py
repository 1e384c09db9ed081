"""The state of each shard of a plan, and the number of shards in each state."""

from __future__ import annotations

from twoshift.errors import InvalidInput

__all__ = ["COMMITTED", "DEAD", "FRESH", "HELD", "LEASED", "RETRY", "ShardStates"]


# RETRY: it was leased, and is to be again; HELD: another process may have it
FRESH, RETRY, LEASED, COMMITTED, DEAD, HELD = range(6)


class ShardStates:
    """One byte per shard, because there may be millions."""

    def __init__(self, shards: int) -> None:
        if shards < 0:
            raise InvalidInput("shards", shards, "0 or more")
        self._states = bytearray(shards)
        self._counts = [shards, 0, 0, 0, 0, 0]  # by state
        self._cursor = 0  # no shard before it is fresh

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, shard: int) -> int:
        return self._states[shard]

    def __setitem__(self, shard: int, state: int) -> None:
        self._counts[self._states[shard]] -= 1
        self._counts[state] += 1
        self._states[shard] = state

    def check(self, shard: int) -> None:
        """Raises InvalidInput if the plan has no such shard."""
        if not 0 <= shard < len(self._states):
            raise InvalidInput("shard", shard, f"a shard of the plan: 0 to {len(self._states) - 1}")

    def count(self, state: int) -> int:
        """Number of shards in this state."""
        return self._counts[state]

    def all_in(self, state: int) -> list[int]:
        """The shards in this state."""
        return [shard for shard, found in enumerate(self._states) if found == state]

    def next_fresh(self) -> int | None:
        """The next shard that no worker has had; each shard is returned once."""
        found = self._states.find(FRESH, self._cursor)
        self._cursor = len(self._states) if found < 0 else found + 1
        return None if found < 0 else found

    def renew(self, shard: int) -> None:
        """No worker here has had the shard: return it again."""
        self[shard] = FRESH
        self._cursor = min(self._cursor, shard)

    def validate(self) -> None:
        """Raises AssertionError if an invariant of an attribute does not hold."""
        assert self._counts == [self._states.count(state) for state in range(6)]  # noqa: S101
        assert self._states.find(FRESH, 0, self._cursor) == -1  # noqa: S101
