"""From a run that is decided on to its job: once, whatever happens in between."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from twoshift.errors import InvalidInput, TryLater, TwoshiftError
from twoshift.policy.triggers import Meeting, meet
from twoshift.trigger_ports import ScheduledRun, ScheduleRecord, ScheduleStore
from twoshift.triggers.spec import ScheduleSpec
from twoshift.types import JobState, RunState

__all__ = ["JobSubmitter", "Submitter", "Tell"]

_LOOKED_AT = 200  # runs of a schedule: of the others the jobs are over

Tell = Callable[[str, str, str, dict[str, Any], Sequence[str]], None]  # owner, kind, subject, data, webhooks


class JobSubmitter(Protocol):
    """Who runs them."""

    def submit(self, data: dict[str, Any], owner: str = "", job_id: str | None = None) -> Any: ...

    def cancel(self, job_id: str) -> Any: ...

    def check(self, data: dict[str, Any], owner: str = "") -> None: ...

    def check_ours(self) -> None: ...


class Submitter:
    """Any thread may call it; of a schedule one at a time does something."""

    def __init__(self, store: ScheduleStore, jobs: JobSubmitter, tell: Tell) -> None:
        self._store, self._jobs, self._tell = store, jobs, tell
        self.settled: Counter[RunState] = Counter()  # runs, since the start
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def submit_waiting(self, schedule: ScheduleRecord) -> None:
        """Those that wait, as far as they need not wait on; raises TryLater."""
        spec = msgspec.convert(schedule.spec, ScheduleSpec)
        with self._locks[schedule.id]:
            runs = self._store.runs(schedule.id, _LOOKED_AT)
            going = [each for each in runs if each.state is RunState.SUBMITTED and _goes(each)]
            before = 0  # that wait on
            for run in reversed([each for each in runs if each.state is RunState.WAITING]):
                match meet(spec.when_going, bool(going), before):
                    case Meeting.WAIT:
                        before += 1
                        continue
                    case Meeting.SKIP:
                        told = (
                            f"the previous run, {going[0].id}, was still running"
                            if going
                            else "too many runs are waiting"
                        )
                        self._settle(run, RunState.SKIPPED, told)
                        continue
                    case Meeting.CANCEL:
                        self._cancel(going)
                    case Meeting.SUBMIT:
                        pass
                self._submit(schedule, spec, run, runs)
                going = [run]

    def _cancel(self, going: Sequence[ScheduledRun]) -> None:
        for each in going:
            with contextlib.suppress(InvalidInput):  # it is over by now
                self._jobs.cancel(each.id)

    def _submit(
        self, schedule: ScheduleRecord, spec: ScheduleSpec, run: ScheduledRun, runs: Sequence[ScheduledRun]
    ) -> None:
        try:
            _check_output(run, runs)
            self._jobs.submit(spec.settings(run), schedule.owner, run.id)
        except TryLater:
            raise
        except TwoshiftError as error:
            self._tell_failed(schedule, spec, run, str(error))
            self._settle(run, RunState.FAILED, str(error))
        else:
            self._settle(run, RunState.SUBMITTED)

    def _settle(self, run: ScheduledRun, state: RunState, reason: str | None = None) -> None:
        self._store.settle(run.id, state, reason)
        self.settled[state] += 1

    def _tell_failed(self, schedule: ScheduleRecord, spec: ScheduleSpec, run: ScheduledRun, why: str) -> None:
        data = {"object": "schedule", "name": schedule.name, "due_at": run.due_unix_s, "reason": why}
        named = spec.job.get("notify", ())
        self._tell(schedule.owner, "schedule.failed", schedule.id, data, [named] if isinstance(named, str) else named)


def _goes(run: ScheduledRun) -> bool:
    return run.job_state is not None and not JobState(run.job_state).is_over


def _check_output(run: ScheduledRun, runs: Sequence[ScheduledRun]) -> None:
    """A run that was asked for by hand may be like one that has been."""
    for each in runs:
        if each.output == run.output and each.state is RunState.SUBMITTED and each.id != run.id:
            raise InvalidInput(
                "output",
                run.output,
                f"another folder: the run {each.id} uses this folder; add {{run}} to the path for a folder per run",
            )
