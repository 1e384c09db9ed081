"""What a run of a job begins with: the work of earlier runs, and the workers that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from twoshift.batch.run_record import RunRecord

__all__ = ["EarlierRuns", "StartedWorkers"]


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Of the same job."""

    committed: AbstractSet[int] = frozenset()  # shards
    records: Sequence[RunRecord] = ()
    counted: tuple[int, int] | None = None  # errors and rows of what is committed, where its parts were asked

    @property
    def errors_and_rows(self) -> tuple[int, int]:
        """Of what is committed, as the parts say or as was recorded."""
        return self.counted or (sum(run.errors for run in self.records), sum(run.rows for run in self.records))


@dataclass(frozen=True, slots=True)
class StartedWorkers:
    """Before the first shard."""

    are_loaded: Mapping[int, bool] = field(default_factory=dict[int, bool])  # by number: whether its model is
    worker_s: float = 0.0  # that they have had so far
    load_s: float = 0.0  # until a new worker takes its first shard
