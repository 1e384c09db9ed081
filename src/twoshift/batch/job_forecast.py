"""What was said of a job's end while it ran, and what came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from twoshift.batch.coordinator import Ending
from twoshift.batch.job import JobResult
from twoshift.batch.progress import JobSnapshot
from twoshift.prediction_ports import Prediction

__all__ = ["ETA", "FIRST_ROWS", "JobForecast"]

FIRST_ROWS, ETA = "time of a job, by its first rows", "time of a job, at a tenth of it"
_SHARE = 0.1  # of the job that has to be done before its ETA is held against its end


class _Said(NamedTuple):
    """Seconds of the whole run."""

    middle_s: float
    low_s: float | None
    high_s: float | None


class JobForecast:
    """Of one run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, is_first_run: bool = True) -> None:
        self._clock = clock  # the coordinator's
        self._is_first_run = is_first_run  # nobody predicted that it would be paused, or fail
        self._said: _Said | None = None
        self._was_held = False

    def heard(self, now: JobSnapshot, is_held: bool) -> None:
        """How far it is; held back by its hours or by live load, its end could not have been predicted."""
        self._was_held |= is_held
        seen = now.outlook
        if self._said is not None or seen.eta_s is None or now.share - now.share_before < _SHARE or now.share >= 1:
            return
        began_s = self._clock() - now.elapsed_s
        low_s, high_s = (None if at_s is None else at_s - began_s for at_s in (seen.p10_s, seen.p90_s))
        self._said = _Said(seen.eta_s - began_s, low_s, high_s)

    def scored(self, result: JobResult, subject: str, owner: str, model: str) -> Iterator[Prediction]:
        """Once it is done."""
        is_resumed = result.last.share_before > 0  # or was done before: an earlier run said when
        if result.ending is not Ending.DONE or self._was_held or is_resumed or not self._is_first_run:
            return
        at_s, summary = time.time(), result.summary
        if summary is not None and summary.predicted_s and len(summary.runs) == 1:
            said, took_s = summary.predicted_s, summary.elapsed_s
            yield Prediction("job", model, FIRST_ROWS, "s", said, took_s, at_s, subject, owner)
        if self._said is not None:
            middle_s, low_s, high_s = self._said
            took_s = result.last.elapsed_s
            yield Prediction("job", model, ETA, "s", middle_s, took_s, at_s, subject, owner, low_s, high_s)
