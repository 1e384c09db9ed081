"""How far a job is, for people and for its report."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from twoshift.policy.deadline import Outlook, Verdict

__all__ = ["NOTHING_YET", "JobSnapshot"]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A moment of a job."""

    elapsed_s: float  # of this run
    shards: int
    shards_done: int
    share: float  # of the input, done
    share_before: float  # done by earlier runs
    rows: int  # done in this run, also of shards that are not committed yet
    committed_rows: int  # in this run
    errors: int  # of those
    rows_per_s: float
    tokens_per_s: float
    padding: float  # share of what the devices ran
    workers: int
    usd: float | None
    outlook: Outlook
    rows_left: int = 0  # about, where the formats do not say how many there are
    window_left_s: float = math.inf  # negative where it is missed
    rows_before: int = 0  # committed by earlier runs, and at the end by other processes, too
    errors_before: int = 0  # of those
    rows_total: int | None = None  # of the input, where its formats tell
    rows_loaded: int | None = None  # into the job's store, over all runs; None where it has none
    load_problem: str = ""  # why the store takes no rows now

    def in_whole(self, rows: int, errors: int) -> JobSnapshot:
        """The same, where the parts of the whole job have so many: other processes may have done some."""
        before = max(0, rows - self.committed_rows), max(0, errors - self.errors)
        return replace(self, rows_before=before[0], errors_before=before[1])

    @property
    def failed_words(self) -> str:
        """How many rows have failed, over all runs."""
        return f"{self.errors_before + self.errors:,} of {self.rows_before + self.committed_rows:,}"

    @property
    def left_s(self) -> float | None:
        """To go at this run's pace; None where nothing can be said yet."""
        done = self.share - self.share_before
        return self.elapsed_s * (1 - self.share) / done if done > 0 and self.share < 1 else None


NOTHING_YET = JobSnapshot(
    elapsed_s=1e-9,
    shards=0,
    shards_done=0,
    share=0.0,
    share_before=0.0,
    rows=0,
    committed_rows=0,
    errors=0,
    rows_per_s=0.0,
    tokens_per_s=0.0,
    padding=0.0,
    workers=0,
    usd=None,
    outlook=Outlook(Verdict.UNKNOWN, None, None, None, None, None, None),
)
