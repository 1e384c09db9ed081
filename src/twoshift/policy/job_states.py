"""The states of a server's jobs, what moves them, and the status that a batch has by its job's."""

from __future__ import annotations

import enum
from typing import NamedTuple

from twoshift.types import BatchStatus, JobState

__all__ = ["JobMove", "batch_end", "batch_status"]


class _Move(NamedTuple):
    before: tuple[JobState, ...]
    after: JobState


class JobMove(enum.Enum):
    """Everything that changes a job's state, whatever its kind. In another state than those before it does nothing."""

    BEGIN = _Move((JobState.QUEUED,), JobState.RUNNING)
    PUT_OFF = _Move((JobState.QUEUED, JobState.RUNNING), JobState.QUEUED)  # its model is away, or it is held back
    STOP = _Move((JobState.RUNNING,), JobState.QUEUED)  # with its server, which goes on when it starts again
    FINISH = _Move((JobState.RUNNING,), JobState.DONE)
    FAIL = _Move((JobState.RUNNING,), JobState.FAILED)
    PAUSE = _Move((JobState.QUEUED, JobState.RUNNING), JobState.PAUSED)
    RESUME = _Move((JobState.PAUSED, JobState.FAILED), JobState.QUEUED)
    CANCEL = _Move((JobState.QUEUED, JobState.RUNNING, JobState.PAUSED, JobState.FAILED), JobState.CANCELLED)
    END = _Move((JobState.QUEUED, JobState.RUNNING, JobState.PAUSED), JobState.CANCELLED)  # by its batch

    @property
    def before(self) -> tuple[JobState, ...]:
        """The states in which it does something."""
        return self.value.before

    @property
    def after(self) -> JobState:
        """The state that it leads to."""
        return self.value.after


def batch_status(end: BatchStatus | None, is_cancelled: bool, job: JobState | None) -> BatchStatus:
    """What clients see of a batch: its end, else what somebody wants of it, else how far its job is."""
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
    """How a batch ends whose files are made: of a refused one there are none."""
    if is_cancelled:
        return BatchStatus.CANCELLED
    if is_refused:
        return BatchStatus.FAILED
    # A window that ends with the last request has cost nothing
    return BatchStatus.EXPIRED if job is JobState.CANCELLED and not_run else BatchStatus.COMPLETED
