"""Jobs on a server: they run in the batch lane of its replicas, and go on by themselves after a restart."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from twoshift.batch.allowance import Allowance
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.folder import FolderTaken
from twoshift.batch.hosted import HostedKind, HostedTables
from twoshift.batch.inputs import resolve
from twoshift.batch.job import Job, Resumed
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import LiveFleet, Used
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.progress import NOTHING_YET
from twoshift.batch.running import HELD_S, MOST_AT_ONCE, RunningJob, RunningJobs, state_after
from twoshift.batch.settings import JobSettings, Mark, make_settings
from twoshift.batch.turns import in_turn
from twoshift.batch.warm import warm
from twoshift.declare import declared
from twoshift.errors import Broken, Elsewhere, InvalidInput, NotFound, TryLater, TwoshiftError
from twoshift.ports import Claim, JobRecord, JobStore
from twoshift.types import JobKindName, JobState
from twoshift.units import parse_duration

__all__ = ["JobHost"]

_logger = logging.getLogger("twoshift.jobs")
_TICK_S = 0.05
_KEEP_S = 1.0  # between two words with the store: the claim, how far jobs are
_BEGIN_S = 5.0  # between looks at jobs that wait for their turn, and at a claim that another server has
_TAKEN_S = 3.0  # after which a job looks again whether its folder is free
_NAMED = 3  # parts in a line of the log
_CLOSE_S = 2.0  # that a database without an answer may hold up the end
_NOT_OVER = (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)
_QUEUED = f"waits for its turn: at most {MOST_AT_ONCE} jobs run at once"
_NOT_THEIRS = [name for name, each in declared(JobSettings).items() if Mark.HERE in each.marks and name != "workers"]


class JobHost:
    """Any thread may call it. The store remembers which jobs there are; what they have done lies in their folders.

    Jobs go on while the database does not answer. Where another server has their claim they stop here, and every
    question about them raises Elsewhere.
    """

    def __init__(
        self,
        store: JobStore,
        fleet_of: Callable[[str], LiveFleet],  # raises NotFound
        allowance_of: Callable[[str], Allowance],  # by owner
        claim: Claim | None = None,  # without it nobody else has the store
        # raises where an owner's job names webhooks that it may not
        check_notify: Callable[[Sequence[str], str], None] = lambda _named, _owner: None,
    ) -> None:
        self._known, self._fleet_of, self.allowance_of = store, fleet_of, allowance_of
        self.kinds: dict[JobKindName, HostedKind] = {JobKindName.TABLE: HostedTables(allowance_of)}
        self._check_notify = check_notify
        self._claim, self._is_ours = claim, False
        self._running = RunningJobs()
        self._adding = threading.Lock()  # one at a time is counted and added
        self._beginning = threading.Lock()  # one at a time looks for jobs to begin
        self._closed = threading.Event()  # nothing is begun any more
        self._left = threading.Event()  # and nothing runs
        self._ticker = threading.Thread(target=self._tick, name="twoshift-lanes", daemon=True)
        self._keeper = threading.Thread(target=self._keep, name="twoshift-keeper", daemon=True)

    def start(self) -> None:
        """Go on with what an earlier server has left, once it is gone; raises TryLater."""
        warm()
        self._look_at_claim()
        self._ticker.start()
        self._keeper.start()

    def submit(self, data: dict[str, Any], owner: str = "", job_id: str | None = None) -> JobRecord:
        """A new job, or the very same one that is not over yet, or of that id; raises InvalidInput, NotFound."""
        if job_id is not None:
            with contextlib.suppress(NotFound):
                return self._store.get(job_id)
        settings, allowed = self._settings(data, owner), self.allowance_of(owner)
        allowed.check_output(settings.output)  # before anything is said about what is there
        now_s = time.time()
        encoded = msgspec.to_builtins(settings)
        if (same := self._same(settings, owner)) is not None:
            return same
        allowed.check_open(self._store.open_jobs(owner))
        _look(settings, allowed)
        new_id = job_id or f"job-{uuid.uuid4().hex[:12]}"
        due_unix_s = None if settings.window is None else now_s + parse_duration(settings.window, "window")
        record = JobRecord(new_id, encoded, JobState.QUEUED, now_s, now_s, _QUEUED, owner=owner, due_unix_s=due_unix_s)
        with self._adding:  # of several that come at once, each sees those before it
            if (same := self._same(settings, owner)) is not None:
                return same
            allowed.check_open(self._store.open_jobs(owner))
            self._store.add(record)
        self._store.note(record.id, f"{settings.model} over {', '.join(settings.inputs)} to {settings.output}")
        self._begin_queued()
        return self._store.get(record.id)

    def _same(self, settings: JobSettings, owner: str) -> JobRecord | None:
        """The very same job that is not over yet; raises InvalidInput where another one has its folder."""
        same = self._store.of_output(settings.output)
        if same is None:
            return None
        before = msgspec.structs.replace(msgspec.convert(same.settings, JobSettings), workers=settings.workers)
        if same.owner != owner:
            raise InvalidInput("output", settings.output, "another folder: this one is taken")
        if before != settings:
            raise InvalidInput("output", settings.output, f"another folder: {same.id} writes to this one")
        return same

    def add(self, job_id: str, settings: JobSettings, owner: str) -> None:
        """A job of the server's own, once, however often it is asked for."""
        replicas = self._fleet_of(settings.model).replicas()
        settings, now_s = msgspec.structs.replace(settings, workers=max(1, len(replicas))), time.time()
        record = JobRecord(
            job_id, msgspec.to_builtins(settings), JobState.QUEUED, now_s, now_s, _QUEUED,
            owner=owner, due_unix_s=settings.due_unix_s, kind=settings.kind,
        )  # fmt: skip
        if self._store.add(record):
            self._begin_queued()

    def end(self, job_id: str, reason: str = "") -> None:
        """Stop a job now and for good, unless it is over."""
        with contextlib.suppress(InvalidInput):
            self._stop(job_id, _NOT_OVER, JobState.CANCELLED, now=True, reason=reason)

    def has_ended(self, job_id: str) -> bool:
        """Whether nothing works on it any more, nor ever will."""
        return job_id not in self._running and self._store.get(job_id).state.is_over

    @property
    def is_ours(self) -> bool:
        """Whether this server has the store."""
        return self._is_ours and not self._closed.is_set()

    def check(self, data: dict[str, Any], owner: str = "") -> None:
        """Whether such a job could be submitted, as far as its settings tell; raises InvalidInput, NotFound."""
        settings, allowed = self._settings(data, owner), self.allowance_of(owner)
        allowed.check_output(settings.output)
        for place in settings.inputs:
            allowed.blobs_for(place)

    def check_ours(self) -> None:
        """Raises Elsewhere where the jobs are another server's."""
        _ = self._store

    def get(self, job_id: str) -> JobRecord:
        """Raises NotFound."""
        return self._store.get(job_id)

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        """The newest first, of that owner or of all."""
        return self._store.list(limit, after, owner)

    def notes(self, job_id: str) -> list[tuple[float, str]]:
        """Its log; raises NotFound."""
        self._store.get(job_id)
        return self._store.notes(job_id)

    def pause(self, job_id: str) -> JobRecord:
        """Stop it after the shards in work, until it is told to go on; raises NotFound, InvalidInput."""
        self._check_change(job_id)
        return self._stop(job_id, [JobState.QUEUED, JobState.RUNNING], JobState.PAUSED, now=False)

    def cancel(self, job_id: str) -> JobRecord:
        """Stop it now and for good; what it has committed stays. Raises NotFound, InvalidInput."""
        self._check_change(job_id)
        return self._stop(job_id, [*_NOT_OVER, JobState.FAILED], JobState.CANCELLED, now=True)

    def resume(self, job_id: str) -> JobRecord:
        """Go on with one that was paused, or that failed; raises NotFound, InvalidInput."""
        self._check_change(job_id)
        if not self._store.move(job_id, [JobState.PAUSED, JobState.FAILED], JobState.QUEUED, "resumed"):
            raise InvalidInput("job", str(self._store.get(job_id).state), "a job that is paused or has failed")
        self._store.note(job_id, "resumed")
        self._begin_queued()
        return self._store.get(job_id)

    def running(self) -> dict[str, JobOnFleet]:
        """The lanes of the jobs that run."""
        return {job_id: each.lane for job_id, each in self._running.all().items()}

    def backlog(self, model: str) -> list[tuple[int, float]]:
        """Of each job that runs over a model: rows left, and seconds left of its window, infinite without one.

        Those that are held back for their hours are not in it: more replicas would not help them.
        """
        at_work = [each for each in self._running.all().values() if not each.lane.why_held]
        return [(each.last.rows_left, each.last.window_left_s) for each in at_work if each.job.settings.model == model]

    def used(self) -> dict[tuple[str, str], Used]:
        """By owner and model: what jobs have had of the devices since this start."""
        return self._running.used()

    def look_again(self) -> None:
        """Begin what has waited for a model that is there now."""
        self._running.try_all()
        with contextlib.suppress(TwoshiftError):  # the keeper tries again
            if self.is_ours:
                self._begin_queued()

    def let_go(self, model: str, why: str, timeout_s: float) -> bool:
        """Hand the jobs of a model that goes back to the queue; False where one has not stopped in time."""
        with self._beginning:  # whoever begins now is one of them, or sees that the model is away
            stopped = self._running.hand_back_of(model, why)
        until_s = time.monotonic() + timeout_s
        for each in stopped:
            each.thread.join(max(0.0, until_s - time.monotonic()))
        return not any(each.thread.is_alive() for each in stopped)

    def close(self, grace_s: float) -> bool:
        """Stop every job; the next server goes on with them. False where one has not ended in time."""
        self._closed.set()
        running = list(self._running.all().values())
        for each in running:
            # One that is held back would not get on in any time
            each.job.ask_to_stop(now=bool(each.lane.why_held), why="the server was stopped")
        until_s = time.monotonic() + grace_s
        for each in running:
            each.thread.join(max(0.0, until_s - time.monotonic()))
        if self._ticker.is_alive():
            self._ticker.join(max(_TICK_S, until_s - time.monotonic()))
        self._left.set()
        if self._keeper.is_alive():
            self._keeper.join(_CLOSE_S)
        self._known.close()
        return not any(each.thread.is_alive() or each.pool.is_stuck() for each in running)

    @property
    def _store(self) -> JobStore:
        """The store; raises Elsewhere where it is another server's."""
        if not self._is_ours and self._claim is not None:
            raise Elsewhere(self._claim.told, _BEGIN_S)
        return self._known

    def _settings(self, data: dict[str, Any], owner: str) -> JobSettings:
        for name in _NOT_THEIRS:
            if data.get(name) is not None:
                raise InvalidInput(name, data[name], "a job without it: it runs on the server's own replicas")
        if data.get("endpoint") is not None or data.get("due_unix_s") is not None:
            raise InvalidInput(
                "endpoint", data.get("endpoint"), "a job without it; for a file of requests use POST /v1/batches"
            )
        settings = make_settings(data)
        self._check_notify(settings.notify, owner)
        fleet = self._fleet_of(settings.model)
        if why := fleet.why_away():
            raise TryLater(why, HELD_S)
        settings.check_model(fleet.is_llm)
        return msgspec.structs.replace(settings, workers=max(1, len(fleet.replicas())))

    def _check_change(self, job_id: str) -> None:
        self.kinds[self._store.get(job_id).kind].check_change(job_id)

    def _stop(
        self, job_id: str, expected: Sequence[JobState], then: JobState, now: bool, reason: str = ""
    ) -> JobRecord:
        """The store says it first: whoever starts this server again must know."""
        reason = reason or str(then)
        if not self._store.move(job_id, expected, then, reason):
            raise InvalidInput("job", str(self._store.get(job_id).state), "a job that has not ended")
        self._store.note(job_id, reason)
        running = self._running.get(job_id)
        if running is not None:
            running.job.ask_to_stop(now or bool(running.lane.why_held), str(then))
        return self._store.get(job_id)

    # The claim, and what is told to the store

    def _keep(self) -> None:
        due_s = time.monotonic() + _BEGIN_S
        while not self._left.wait(_KEEP_S):
            is_due = time.monotonic() >= due_s
            due_s = time.monotonic() + _BEGIN_S if is_due else due_s
            with contextlib.suppress(TwoshiftError):  # the database does not answer: the next time
                if self._is_ours or is_due:
                    self._look_at_claim()
                if self._is_ours:
                    self._tell()
                    self._running.hand_back()
                    if is_due:
                        self._begin_queued()
            for kind in self.kinds.values() if self.is_ours else ():
                with contextlib.suppress(TwoshiftError):
                    kind.keep()
        with contextlib.suppress(TwoshiftError):  # then others have to wait until its time has passed
            if self._claim is not None and self._is_ours:
                self._claim.release()

    def _look_at_claim(self) -> None:
        if self._is_ours:
            if self._claim is not None and not self._claim.renew():
                self._lose()
        elif not self.running() and (self._claim is None or self._claim.take()):
            self._is_ours = True
            self._go_on()

    def _go_on(self) -> None:
        """With what another server, or an earlier start of this one, has left."""
        for record in self._store.unfinished():
            if record.state is JobState.RUNNING:
                self._store.move(record.id, [JobState.RUNNING], JobState.QUEUED, "the server was restarted")
                self._store.note(record.id, "the server was restarted")
        self._begin_queued()

    def _lose(self) -> None:
        """Another server has the jobs: what they have committed is there, and that one goes on."""
        self._is_ours = False
        running = list(self._running.all().values())
        for each in running:
            each.is_ours = False
            each.job.ask_to_stop(now=True, why="another server took the job over")
        told = "" if self._claim is None else self._claim.told
        _logger.warning("%s now: %d running jobs stop on this server", told, len(running))

    def _tell(self) -> None:
        told = dict[str, dict[str, Any]]()
        for job_id, each in self._running.all().items():
            now, each.now = each.now, None
            if now is not None:
                told[job_id] = each.progress(now)
        self._store.progressed(told)

    # A job's life

    def _begin_queued(self) -> None:
        self._running.hand_back()
        with self._beginning:
            while not self._closed.is_set() and self._running.has_room() and self._begin_some():
                pass

    def _begin_some(self) -> bool:
        """Those that are next, of each owner a few, as there may be thousands; whether others are to be looked at."""
        moved, told = False, set[str]()
        besides, most = self._running.not_now()
        for record in in_turn(self._store.waiting(most, besides), self._running.owners()):
            if self._closed.is_set() or not self._running.has_room():
                return False
            if why := self._running.why_waits(record.owner, self.allowance_of(record.owner)):
                if record.owner not in told:
                    told.add(record.owner)
                    self._store.wait_for(record.owner, why, besides)
            elif why := self._why_held(record):
                self._put_off(record, why)
                moved = True
            elif (
                record.state is JobState.RUNNING  # and nobody runs it: what said so was lost on its way
                or self._store.move(record.id, [JobState.QUEUED], JobState.RUNNING)
            ):
                self._begin(record)
                moved = True
        return moved

    def _why_held(self, record: JobRecord) -> str:
        """That its model is away; or what would hold it back, where no place is left for such."""
        with contextlib.suppress(TwoshiftError):  # it fails as it begins
            if why := self._fleet_of(record.settings["model"]).why_away():
                return why
        if self._running.has_room_for_held(record.owner):
            return ""
        try:
            return self._lane(record.owner, msgspec.convert(record.settings, JobSettings)).why_held
        except (TwoshiftError, msgspec.ValidationError):
            return ""  # it fails as it begins

    def _put_off(self, record: JobRecord, why: str) -> None:
        self._running.hold_off(record.id)
        if record.reason != why or record.state is not JobState.QUEUED:
            self._store.move(record.id, [JobState.QUEUED, JobState.RUNNING], JobState.QUEUED, why)

    def _lane(self, owner: str, settings: JobSettings) -> JobOnFleet:
        return JobOnFleet(settings, self._fleet_of(settings.model), withheld=self.allowance_of(owner).withheld)

    def _begin(self, record: JobRecord) -> None:
        try:
            settings = msgspec.convert(record.settings, JobSettings)
            lane = self._lane(record.owner, settings)
            kind = self.kinds[record.kind]
            blobs_for = kind.blobs_for(record.owner)
            pool = EnginePool(settings, lane, blobs_for)
            job = Job(settings, blobs_for, pool, lane)
        except (TwoshiftError, msgspec.ValidationError) as error:  # the server serves something else now
            self._store.move(record.id, [JobState.RUNNING], JobState.FAILED, str(error))
            return
        thread = threading.Thread(
            target=lambda: self._run(record.id, kind, begun), name=f"twoshift-{record.id}", daemon=True
        )
        begun = RunningJob(job, pool, lane, thread, (record.owner, settings.model))
        self._running.add(record.id, begun)
        thread.start()

    def _run(self, job_id: str, kind: HostedKind, begun: RunningJob) -> None:
        state, reason, settings = JobState.FAILED, "", begun.job.settings
        try:
            kind.check_begin(settings, begun.payer[0])
            result = begun.job.run(lambda found: self._found(job_id, found), begun.heard)
            state, reason = state_after(result)
            if begun.handed_back and state is JobState.QUEUED:
                reason = begun.handed_back
                self._running.hold_off(job_id)
            begun.ending = result.ending
            begun.now = None if result.last is NOTHING_YET else result.last  # what an earlier run told is still so
        except (FolderTaken, TryLater) as error:  # a run that ends, a full disk, an object store that is silent
            self._running.try_later(job_id, error.retry_after_s if isinstance(error, TryLater) else _TAKEN_S)
            state, reason = JobState.QUEUED, str(error)
        except TwoshiftError as error:
            reason = str(error)
        except Exception as error:  # one job's failure is its own
            _logger.exception("job %s", job_id)
            reason = f"{type(error).__name__}: {error}"
        finally:
            begun.lane.close()
            if state is JobState.FAILED and (why := begun.lane.why_dead()):
                self._running.hold_off(job_id)
                state, reason = JobState.QUEUED, f"its model has died, and waits for the server's next start: {why}"
            self._settle(job_id, begun, state, reason)
            self._running.ended(job_id)
            kind.ended(job_id)
        if not self._closed.is_set():
            with contextlib.suppress(TwoshiftError):  # the keeper tries again
                self._begin_queued()

    def _settle(self, job_id: str, running: RunningJob, state: JobState, reason: str) -> None:
        """Until the store knows it; the next server finds it running, and goes on, where this one ends first."""
        while running.is_ours:
            try:
                if running.now is not None:
                    self._store.progressed({job_id: running.progress(running.now)})
                if self._store.move(job_id, [JobState.RUNNING], state, reason):
                    self._store.note(job_id, f"{state}: {reason}" if reason else str(state))
                break
            except Elsewhere:
                break
            except TwoshiftError:
                if self._closed.wait(_KEEP_S):
                    return

    def _found(self, job_id: str, found: Resumed | None) -> None:
        if found is None:
            return
        with contextlib.suppress(TwoshiftError):
            self._store.note(job_id, f"{found.done:,} of {found.shards:,} shards done before")
            if found.gone:
                self._store.note(job_id, f"redone because missing: {', '.join(found.gone[:_NAMED])}")

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S):
            for lane in self.running().values():
                lane.tick()


def _look(settings: JobSettings, allowed: Allowance) -> None:
    """What is wrong with its input is told at once; raises InvalidInput."""
    try:
        files = resolve(settings.inputs, allowed.blobs_for, settings.input_format)
        kind_of(settings).first_look(files, allowed.blobs_for, settings)
    except Broken as error:  # damaged, or replaced just now
        raise InvalidInput("inputs", ", ".join(settings.inputs), f"files that can be read: {error}") from error
