"""The queue of a server's jobs: begins what is next, runs it, and tells the store how it ended."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from twoshift.batch.allowance import Allowance
from twoshift.batch.claimed_jobs import ClaimedJobs
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.folder import FolderTaken
from twoshift.batch.hosted import HostedKind
from twoshift.batch.job import Job, Resumed
from twoshift.batch.job_forecast import JobForecast
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import LiveFleet
from twoshift.batch.progress import NOTHING_YET
from twoshift.batch.running import HostedJob, RunningJobs, move_after
from twoshift.batch.settings import JobSettings
from twoshift.batch.turns import in_turn
from twoshift.errors import Elsewhere, TryLater, TwoshiftError
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.prediction_ports import Prediction
from twoshift.types import JobKindName, JobState

__all__ = ["JobQueue"]

_logger = logging.getLogger("twoshift.jobs")
_TICK_S = 0.05
_SETTLE_S = 1.0  # between tries to tell the store
_TAKEN_S = 3.0  # after which a job looks again whether its folder is free
_NAMED = 3  # parts in a line of the log


class JobQueue:
    """Any thread may call it."""

    def __init__(
        self,
        jobs: ClaimedJobs,
        kinds: Mapping[JobKindName, HostedKind],
        fleet_of: Callable[[str], LiveFleet],
        allowance_of: Callable[[str], Allowance],
    ) -> None:
        self._jobs, self._kinds, self._fleet_of, self._allowance_of = jobs, kinds, fleet_of, allowance_of
        self.running = RunningJobs()
        self.scored: Callable[[Prediction], None] = lambda _scored: None  # told what came of predictions
        self._beginning = threading.Lock()  # one at a time looks for jobs to begin
        self._closed = threading.Event()  # nothing is begun any more
        self._ticker = threading.Thread(target=self._tick, name="twoshift-lanes", daemon=True)

    def start(self) -> None:
        """The lanes of jobs are looked at from now on."""
        self._ticker.start()

    def close(self, grace_s: float) -> bool:
        """Stop every job; the next server goes on with them. False where one has not ended in time."""
        self._closed.set()
        running = list(self.running.all().values())
        for each in running:
            # One that is held back would not get on in any time
            each.job.ask_to_stop(now=bool(each.lane.why_held), why="the server was stopped")
        until_s = time.monotonic() + grace_s
        for each in running:
            each.thread.join(max(0.0, until_s - time.monotonic()))
        if self._ticker.is_alive():
            self._ticker.join(max(_TICK_S, until_s - time.monotonic()))
        return not any(each.thread.is_alive() or each.pool.is_stuck() for each in running)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is begun any more."""
        return self._closed.is_set()

    def go_on(self) -> None:
        """With what another server, or an earlier start of this one, has left."""
        for record in self._jobs.store.unfinished():
            if record.state is JobState.RUNNING:
                self._jobs.store.move(record.id, JobMove.STOP, "the server was restarted")
                self._jobs.store.note(record.id, "the server was restarted")
        self.begin_queued()

    def stop_all(self) -> None:
        """Another server has the jobs: what they have committed is there, and that one goes on."""
        running = list(self.running.all().values())
        for each in running:
            each.is_ours = False
            each.job.ask_to_stop(now=True, why="another server took the job over")
        _logger.warning("%s from now on: %d running jobs stop on this server", self._jobs.told, len(running))

    def tell(self) -> None:
        """How far the jobs are."""
        told = dict[str, dict[str, Any]]()
        for job_id, each in self.running.all().items():
            now, each.now = each.now, None
            if now is not None:
                told[job_id] = each.progress(now)
        self._jobs.store.progressed(told)

    def look_again(self) -> None:
        """Begin what has waited for a model that is there now."""
        self.running.try_all()
        with contextlib.suppress(TwoshiftError):  # the keeper tries again
            if self._jobs.is_ours and not self._closed.is_set():
                self.begin_queued()

    def let_go(self, model: str, why: str, timeout_s: float) -> bool:
        """Hand the jobs of a model that goes back to the queue; False where one has not stopped in time."""
        with self._beginning:  # whoever begins now is one of them, or sees that the model is away
            stopped = self.running.hand_back_of(model, why)
        until_s = time.monotonic() + timeout_s
        for each in stopped:
            each.thread.join(max(0.0, until_s - time.monotonic()))
        return not any(each.thread.is_alive() for each in stopped)

    def begin_queued(self) -> None:
        """Those whose turn it is, as far as there is room."""
        self.running.hand_back()
        with self._beginning:
            while not self._closed.is_set() and self.running.has_room() and self._begin_some():
                pass

    def _begin_some(self) -> bool:
        """Those that are next, of each owner a few, as there may be thousands; whether others are to be looked at."""
        moved, told = False, set[str]()
        besides, most = self.running.not_now()
        for record in in_turn(self._jobs.store.waiting(most, besides), self.running.owners()):
            if self._closed.is_set() or not self.running.has_room():
                return False
            if why := self.running.why_waits(record.owner, self._allowance_of(record.owner)):
                if record.owner not in told:
                    told.add(record.owner)
                    self._jobs.store.wait_for(record.owner, why, besides)
            elif why := self._why_held(record):
                self._put_off(record, why)
                moved = True
            elif (
                record.state is JobState.RUNNING  # and nobody runs it: what said so was lost on its way
                or self._jobs.store.move(record.id, JobMove.BEGIN)
            ):
                self._begin(record)
                moved = True
        return moved

    def _why_held(self, record: JobRecord) -> str:
        """That its model is away; or what would hold it back, where no place is left for such."""
        with contextlib.suppress(TwoshiftError):  # it fails as it begins
            if why := self._fleet_of(record.settings["model"]).why_away():
                return why
        if self.running.has_room_for_held(record.owner):
            return ""
        try:
            return self._lane(record.owner, msgspec.convert(record.settings, JobSettings)).why_held
        except (TwoshiftError, msgspec.ValidationError):
            return ""  # it fails as it begins

    def _put_off(self, record: JobRecord, why: str) -> None:
        self.running.hold_off(record.id)
        if record.reason != why or record.state is not JobState.QUEUED:
            self._jobs.store.move(record.id, JobMove.PUT_OFF, why)

    def _lane(self, owner: str, settings: JobSettings) -> JobOnFleet:
        return JobOnFleet(settings, self._fleet_of(settings.model), withheld=self._allowance_of(owner).withheld)

    def _begin(self, record: JobRecord) -> None:
        try:
            settings = msgspec.convert(record.settings, JobSettings)
            fleet = self._fleet_of(settings.model)
            asked = min(settings.first_workers, fleet.most_workers)  # which may have changed since
            settings = msgspec.structs.replace(settings, workers=max(asked, len(fleet.replicas())))
            lane = self._lane(record.owner, settings)
            kind = self._kinds[record.kind]
            blobs_for = kind.blobs_for(record.owner)
            pool = EnginePool(settings, lane, blobs_for)
            job = Job(settings, blobs_for, pool, lane)
        except (TwoshiftError, msgspec.ValidationError) as error:  # the server serves something else now
            self._jobs.store.move(record.id, JobMove.FAIL, str(error))
            return
        thread = threading.Thread(
            target=lambda: self._run(record.id, kind, begun), name=f"twoshift-{record.id}", daemon=True
        )
        begun = HostedJob(job, pool, lane, thread, (record.owner, lane.model), asked)
        begun.forecast = JobForecast(is_first_run=record.progress is None)
        self.running.add(record.id, begun)
        thread.start()

    def _run(self, job_id: str, kind: HostedKind, begun: HostedJob) -> None:
        move, reason, settings, scores = JobMove.FAIL, "", begun.job.settings, ()
        try:
            kind.check_begin(settings, begun.payer[0])
            result = begun.job.run(lambda found: self._found(job_id, found), begun.heard)
            move, reason = move_after(result)
            if begun.handed_back and move is JobMove.STOP:
                reason = begun.handed_back
                self.running.hold_off(job_id)
            begun.ending = result.ending
            scores = (*begun.forecast.scored(result, job_id, *begun.payer),)
            begun.now = None if result.last is NOTHING_YET else result.last  # what an earlier run told is still so
        except (FolderTaken, TryLater) as error:  # a run that ends, a full disk, an object store that is silent
            self.running.try_later(job_id, error.retry_after_s if isinstance(error, TryLater) else _TAKEN_S)
            move, reason = JobMove.STOP, str(error)
        except TwoshiftError as error:
            reason = str(error)
        except Exception as error:  # one job's failure is its own
            _logger.exception("job %s failed with an unexpected error", job_id)
            reason = f"{type(error).__name__}: {error}"
        finally:
            begun.lane.close()
            if move is JobMove.FAIL and (why := begun.lane.why_dead()):
                self.running.hold_off(job_id)
                move, reason = (
                    JobMove.STOP,
                    f"the engine of the model has failed ({why}); restart the server to resume the job",
                )
            if self._settle(job_id, begun, move, reason):  # else it was paused before its end was known
                for each in scores:
                    self.scored(each)
            self.running.ended(job_id)
            kind.ended(job_id)
        if not self._closed.is_set():
            with contextlib.suppress(TwoshiftError):  # the keeper tries again
                self.begin_queued()

    def _settle(self, job_id: str, running: HostedJob, move: JobMove, reason: str) -> bool:
        """Until the store knows it; the next server finds it running, and goes on, where this one ends first.

        Whether it was so: a job that was cancelled meanwhile stays so, and one that was paused, unless all is done.
        """
        has_moved = False
        while running.is_ours:
            try:
                if running.now is not None:
                    self._jobs.store.progressed({job_id: running.progress(running.now)})
                has_moved = self._jobs.store.move(job_id, move, reason) or has_moved  # its log may need another try
                if not has_moved and move is JobMove.FINISH:
                    self._jobs.store.move(job_id, JobMove.FINISH_PAUSED, reason)
                if has_moved:
                    self._jobs.store.note(job_id, f"{move.after}: {reason}" if reason else str(move.after))
                break
            except Elsewhere:
                break
            except TwoshiftError:
                if self._closed.wait(_SETTLE_S):
                    break
        return has_moved

    def _found(self, job_id: str, found: Resumed | None) -> None:
        if found is None:
            return
        with contextlib.suppress(TwoshiftError):
            self._jobs.store.note(job_id, f"{found.done:,} of {found.shards:,} shards were already done")
            if found.gone:
                self._jobs.store.note(
                    job_id, f"these parts were missing and are computed again: {', '.join(found.gone[:_NAMED])}"
                )

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S):
            for each in self.running.all().values():
                each.lane.tick()
