"""A job that runs on a server, and what the store is told of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twoshift.batch.coordinator import Ending
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.job import Job, JobResult
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.progress import NOTHING_YET, Snapshot
from twoshift.types import JobState

__all__ = ["RunningJob", "state_after"]


@dataclass(slots=True)
class RunningJob:
    """A job with a thread."""

    job: Job
    pool: EnginePool
    lane: JobOnFleet
    thread: threading.Thread
    payer: tuple[str, str]  # its owner, and the model
    now: Snapshot | None = None  # that the store has not heard of yet
    last: Snapshot = NOTHING_YET
    is_ours: bool = True  # False: another server goes on with it
    ending: Ending | None = None  # of this run
    handed_back: str = ""  # to the queue, and why

    def heard(self, now: Snapshot) -> None:
        """How far it is; who tells the store is another: a job does not wait for the database."""
        self.lane.follow(now)
        self.now = self.last = now

    def progress(self, now: Snapshot) -> dict[str, Any]:
        """For people and programs that ask."""
        used = self.lane.used()
        return {
            "shards": now.shards,
            "shards_done": now.shards_done,
            "share": now.share,
            "rows": now.rows_before + now.rows,
            "rows_total": now.rows_total,
            "rows_committed": now.rows_before + now.committed_rows,
            "errors": now.errors_before + now.errors,
            "rows_per_s": now.rows_per_s,
            "elapsed_s": now.elapsed_s,
            "left_s": now.left_s,
            "chance": now.outlook.chance,
            "harvested_s": used.device_s,
            "riding_s": used.riding_s,
            "held": self.lane.why_held,
            "loaded": _loaded(self.job),
            "ending": self.ending,
        }


def _loaded(job: Job) -> dict[str, str] | None:
    """The model as another run can have it."""
    if job.model is None:
        return None
    path, colon, name = job.model.name.partition(".py:")
    path = f"{path}{colon[:-1]}"
    found = str(Path(path).absolute()) if Path(path).exists() else path
    return {"model": f"{found}:{name}" if colon else found, "precision": job.model.precision}


def state_after(result: JobResult) -> tuple[JobState, str]:
    """What becomes of a job whose run has ended, and why."""
    match result.ending:
        case Ending.DONE:
            return JobState.DONE, ""
        case Ending.STOPPED:
            return JobState.QUEUED, "stopped with its server"  # unless the store knows better
        case Ending.TOO_MANY_ERRORS:
            failed = result.last.errors_before + result.last.errors
            return (
                JobState.FAILED,
                f"too many rows failed: {failed:,}, over max_errors; what was committed is kept",
            )
        case Ending.DEAD_SHARDS:
            dead = (f"shard {shard} could not be done: {why}" for shard, why in result.dead.items())
            return JobState.FAILED, next(dead, "; ".join(result.failures) or "its shards could not be done")
