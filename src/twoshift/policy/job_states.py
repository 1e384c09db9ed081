"""The states of jobs on a server, the moves between them, and the status of a batch that follows from its job."""

from __future__ import annotations

import enum
from typing import NamedTuple

from twoshift.types import BatchStatus, JobState

__all__ = ["JobMove", "batch_end", "batch_status"]


class _Move(NamedTuple):
    before: tuple[JobState, ...]
    after: JobState


class JobMove(enum.Enum):
    """A change of a job's state, for jobs and batches. In a state that is not in `before`, it does nothing."""

    BEGIN = _Move((JobState.QUEUED,), JobState.RUNNING)
    PUT_OFF = _Move((JobState.QUEUED, JobState.RUNNING), JobState.QUEUED)  # its model is away, or it is held back
    STOP = _Move((JobState.RUNNING,), JobState.QUEUED)  # with its server, which goes on when it starts again
    FINISH = _Move((JobState.RUNNING,), JobState.DONE)
    FINISH_PAUSED = _Move((JobState.PAUSED,), JobState.DONE)  # the shards that a pause lets end were its last ones
    FAIL = _Move((JobState.RUNNING,), JobState.FAILED)
    PAUSE = _Move((JobState.QUEUED, JobState.RUNNING), JobState.PAUSED)
    RESUME = _Move((JobState.PAUSED, JobState.FAILED), JobState.QUEUED)
    CANCEL = _Move((JobState.QUEUED, JobState.RUNNING, JobState.PAUSED, JobState.FAILED), JobState.CANCELLED)
    END = _Move((JobState.QUEUED, JobState.RUNNING, JobState.PAUSED), JobState.CANCELLED)  # by its batch

    @property
    def before(self) -> tuple[JobState, ...]:
        """The states in which the move has an effect."""
        return self.value.before

    @property
    def after(self) -> JobState:
        """The state after the move."""
        return self.value.after


def batch_status(end: BatchStatus | None, is_cancelled: bool, job: JobState | None) -> BatchStatus:
    """Status of a batch as clients see it: its end, else the requested change, else the progress of its job."""
    if end is not None:
        return end
    if is_cancelled:
        return BatchStatus.CANCELLING
    match job:
        case None:
            return BatchStatus.VALIDATING
        case JobState.DONE | JobState.FAILED:
            return BatchStatus.FINALIZING
        case JobState.QUEUED | JobState.RUNNING | JobState.PAUSED | JobState.CANCELLED:
            return BatchStatus.IN_PROGRESS  # cancelled by nobody: its window has ended, and its files are being made


def batch_end(is_refused: bool, is_cancelled: bool, job: JobState | None, not_run: int) -> BatchStatus:
    """Final status of a batch after its files are written; a refused batch has no files."""
    if is_cancelled:
        return BatchStatus.CANCELLED
    if is_refused:
        return BatchStatus.FAILED
    # A window that ends with the last request has cost nothing
    return BatchStatus.EXPIRED if job is JobState.CANCELLED and not_run else BatchStatus.COMPLETED
