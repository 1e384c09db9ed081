"""How much of a job's input is done, and how much is left."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from twoshift.batch.plan import Plan

__all__ = ["WorkLeft"]


class WorkLeft:
    """In rows where the formats tell how many there are, in bytes where they do not."""

    def __init__(self, plan: Plan, committed: Collection[int], recorded_rows: int) -> None:
        """`recorded_rows` are those that earlier runs have counted in what is committed."""
        self._plan = plan
        self._sizes = [plan.shard_bytes(shard) for shard in range(len(plan.shards))]
        self._all_bytes = max(1, sum(self._sizes))
        self.bytes = sum(size for shard, size in enumerate(self._sizes) if shard not in committed)  # that are left
        self.share_before = 1 - self.bytes / self._all_bytes
        self.rows_before = _rows_of(plan, committed, recorded_rows)

    def committed(self, shard: int) -> int:
        """One shard less; its bytes."""
        self.bytes -= self._sizes[shard]
        return self._sizes[shard]

    def done_rows(self, rows: int) -> int:
        """Of this run, also in shards in work; no more than there are, where two workers have begun the same shard."""
        return rows if self._plan.rows is None else min(rows, self._plan.rows - self.rows_before)

    def rows(self, done_rows: int) -> int:
        """That are left, by the rows that there are, or by the bytes that the first ones had."""
        all_rows = self._plan.rows or self._all_bytes / max(1.0, self._plan.row_bytes)
        return math.ceil((1 - self.share(done_rows)) * all_rows)

    def share(self, done_rows: int) -> float:
        """Of the input that is done: by rows, where they are known, because a shard in work is not nothing."""
        committed = 1 - self.bytes / self._all_bytes
        if not self._plan.rows:
            return committed
        return max(committed, min(1.0, self.share_before + done_rows / self._plan.rows))


def _rows_of(plan: Plan, shards: Iterable[int], recorded: int) -> int:
    """Of shards that are committed: by the plan, or, where the formats do not say so, by what the runs recorded."""
    counts = [plan.shard_rows(shard) for shard in shards]
    return recorded if None in counts else sum(count or 0 for count in counts)
