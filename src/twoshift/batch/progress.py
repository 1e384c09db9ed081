"""How far a job is, for people and for its report."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.policy.deadline import Outlook, Verdict

__all__ = ["NOTHING_YET", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A moment of a job."""

    elapsed_s: float  # of this run
    shards: int
    shards_done: int
    shards_dead: int
    share: float  # of the input, done
    share_before: float  # done by earlier runs
    rows: int  # done in this run, also of shards that are not committed yet
    errors: int  # of committed rows, in this run
    rows_per_s: float
    tokens_per_s: float
    padding: float  # share of what the devices ran
    busy: float  # share of the workers' time in which their devices ran
    workers: int
    usd: float | None
    outlook: Outlook


NOTHING_YET = Snapshot(
    elapsed_s=1e-9,
    shards=0,
    shards_done=0,
    shards_dead=0,
    share=0.0,
    share_before=0.0,
    rows=0,
    errors=0,
    rows_per_s=0.0,
    tokens_per_s=0.0,
    padding=0.0,
    busy=0.0,
    workers=0,
    usd=None,
    outlook=Outlook(Verdict.UNKNOWN, None, None, None, None, None, None),
)
