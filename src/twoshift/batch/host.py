"""Jobs on a server: they run in the batch lane of its replicas, and go on by themselves after a restart."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from twoshift.batch.coordinator import Ending
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.inputs import InputFile, kept_schema, resolve
from twoshift.batch.job import Job, JobResult, Resumed
from twoshift.batch.lane import JobLane
from twoshift.batch.places import LiveFleet
from twoshift.batch.progress import NOTHING_YET, Snapshot
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.errors import InvalidInput, TwoshiftError
from twoshift.ports import Blobs, JobRecord, JobStore
from twoshift.types import JobState

__all__ = ["JobHost"]

_logger = logging.getLogger("twoshift.jobs")
_TICK_S = 0.05
_PROGRESS_S = 1.0  # between two entries in the store
_MOST_AT_ONCE, _MOST_HELD = 16, 128
_BEGIN_S = 5.0  # between looks at jobs that wait for their turn
_NOT_HERE = ("engine", "address", "resources", "device", "precision", "threads", "trust_pickle")  # the server's to say


@dataclass(slots=True)
class _Running:
    """A job with a thread."""

    job: Job
    pool: EnginePool
    lane: JobLane
    thread: threading.Thread
    last: Snapshot = NOTHING_YET


class JobHost:
    """Any thread may call it. The store remembers which jobs there are; what they have done lies in their folders."""

    def __init__(
        self,
        store: JobStore,
        fleet_of: Callable[[str], LiveFleet],  # raises NotFound
        blobs_for: Callable[[str], Blobs],
        # raises where its files are not to be touched
        check: Callable[[JobSettings, Sequence[InputFile]], None] = lambda _settings, _files: None,
    ) -> None:
        self._store, self._fleet_of, self._blobs_for, self._check = store, fleet_of, blobs_for, check
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()  # guards the one above
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="twoshift-lanes", daemon=True)

    def start(self) -> None:
        """Go on with what an earlier server has left."""
        self._ticker.start()
        for record in self._store.unfinished():
            if record.state is JobState.RUNNING:
                self._store.move(record.id, [JobState.RUNNING], JobState.QUEUED, "the server was restarted")
                self._store.note(record.id, "the server was restarted")
        self._begin_queued()

    def submit(self, data: dict[str, Any], owner: str = "") -> JobRecord:
        """A new job, or the very same one that is not over yet; raises InvalidInput, NotFound."""
        settings = self._settings(data)
        now_s = time.time()
        encoded = msgspec.to_builtins(settings)
        if (same := self._of_output(settings.output)) is not None:
            before = msgspec.structs.replace(msgspec.convert(same.settings, JobSettings), workers=settings.workers)
            if before != settings or same.owner != owner:
                raise InvalidInput("output", settings.output, f"another folder: {same.id} works on this one")
            return same
        self._look(settings)
        record = JobRecord(f"job-{uuid.uuid4().hex[:12]}", encoded, JobState.QUEUED, now_s, now_s, owner=owner)
        self._store.add(record)
        self._store.note(record.id, f"{settings.model} over {', '.join(settings.inputs)} to {settings.output}")
        self._begin_queued()
        return self._store.get(record.id)

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
        return self._stop(job_id, [JobState.QUEUED, JobState.RUNNING], JobState.PAUSED, now=False)

    def cancel(self, job_id: str) -> JobRecord:
        """Stop it now and for good; what it has committed stays. Raises NotFound, InvalidInput."""
        waiting = [JobState.QUEUED, JobState.RUNNING, JobState.PAUSED, JobState.FAILED]
        return self._stop(job_id, waiting, JobState.CANCELLED, now=True)

    def resume(self, job_id: str) -> JobRecord:
        """Go on with one that was paused, or that failed; raises NotFound, InvalidInput."""
        if not self._store.move(job_id, [JobState.PAUSED, JobState.FAILED], JobState.QUEUED, "resumed"):
            raise InvalidInput("job", str(self._store.get(job_id).state), "one that is paused or has failed")
        self._store.note(job_id, "resumed")
        self._begin_queued()
        return self._store.get(job_id)

    def running(self) -> dict[str, JobLane]:
        """The lanes of the jobs that run."""
        with self._lock:
            return {job_id: each.lane for job_id, each in self._running.items()}

    def backlog(self, model: str) -> list[tuple[int, float]]:
        """Of each job that runs over a model: rows left, and seconds left of its window, infinite without one.

        Those that are held back for their hours are not in it: more replicas would not help them.
        """
        with self._lock:
            at_work = [each for each in self._running.values() if not each.lane.why_held]
        return [(each.last.rows_left, each.last.window_left_s) for each in at_work if each.job.settings.model == model]

    def close(self, grace_s: float) -> bool:
        """Stop every job; the next server goes on with them. False where one has not ended in time."""
        self._closed.set()
        with self._lock:
            running = list(self._running.values())
        for each in running:
            each.job.ask_to_stop(now=bool(each.lane.why_held))  # which would not get on in any time
        until_s = time.monotonic() + grace_s
        for each in running:
            each.thread.join(max(0.0, until_s - time.monotonic()))
        if self._ticker.is_alive():
            self._ticker.join(max(_TICK_S, until_s - time.monotonic()))
        self._store.close()
        return not any(each.thread.is_alive() or each.pool.is_stuck() for each in running)

    def _settings(self, data: dict[str, Any]) -> JobSettings:
        for name in _NOT_HERE:
            if data.get(name) is not None:
                raise InvalidInput(name, data[name], "a job without it: it runs on the server's own replicas")
        settings = make_settings(data, "job")
        replicas = self._fleet_of(settings.model).replicas()
        return msgspec.structs.replace(settings, workers=max(1, len(replicas)))

    def _of_output(self, output: str) -> JobRecord | None:
        """The job that is not over and writes there."""
        unfinished = self._store.unfinished()
        return next((each for each in unfinished if each.settings["output"].rstrip("/") == output.rstrip("/")), None)

    def _look(self, settings: JobSettings) -> None:
        """What is wrong with its input is told at once; raises InvalidInput."""
        files = self._files(settings)
        self._check(settings, files)
        kept_schema(files, self._blobs_for, (*settings.keep, *(settings.model_columns or ())))

    def _files(self, settings: JobSettings) -> tuple[InputFile, ...]:
        return tuple(resolve(settings.inputs, self._blobs_for, settings.input_format))

    def _stop(self, job_id: str, expected: Sequence[JobState], then: JobState, now: bool) -> JobRecord:
        """The store says it first: whoever starts this server again must know."""
        if not self._store.move(job_id, expected, then, str(then)):
            raise InvalidInput("job", str(self._store.get(job_id).state), "one that is not over, or stopped already")
        self._store.note(job_id, str(then))
        with self._lock:
            running = self._running.get(job_id)
        if running is not None:
            running.job.ask_to_stop(now or bool(running.lane.why_held))
        return self._store.get(job_id)

    def _begin_queued(self) -> None:
        with self._lock:
            for record in self._store.unfinished():
                at_work = sum(not each.lane.why_held for each in self._running.values())
                if at_work >= _MOST_AT_ONCE or len(self._running) >= _MOST_HELD or self._closed.is_set():
                    return
                if record.id not in self._running and self._store.move(record.id, [JobState.QUEUED], JobState.RUNNING):
                    self._begin(record)

    def _begin(self, record: JobRecord) -> None:
        try:
            settings = msgspec.convert(record.settings, JobSettings)
            lane = JobLane(settings, self._fleet_of(settings.model))
        except (TwoshiftError, msgspec.ValidationError) as error:  # the server serves something else now
            self._store.move(record.id, [JobState.RUNNING], JobState.FAILED, str(error))
            return
        pool = EnginePool(settings, lane, self._blobs_for)
        job = Job(settings, self._blobs_for, pool, lane)
        thread = threading.Thread(target=self._run, args=(record.id,), name=f"twoshift-{record.id}", daemon=True)
        self._running[record.id] = _Running(job, pool, lane, thread)
        thread.start()

    def _run(self, job_id: str) -> None:
        with self._lock:
            running = self._running[job_id]
        state, reason, settings = JobState.FAILED, "", running.job.settings
        try:
            self._check(settings, self._files(settings))  # it may be of an earlier server, with other roots
            result = running.job.run(lambda found: self._found(job_id, found), self._reporter(job_id, running))
            state, reason = self._ended(result)
            with contextlib.suppress(TwoshiftError):
                self._store.progressed(job_id, _progress(result.last, running.lane))
        except TwoshiftError as error:
            reason = str(error)
        except Exception as error:  # one job's failure is its own
            _logger.exception("job %s", job_id)
            reason = f"{type(error).__name__}: {error}"
        finally:
            running.lane.close()
            with self._lock:
                del self._running[job_id]
            self._settle(job_id, state, reason)
        if not self._closed.is_set():
            with contextlib.suppress(TwoshiftError):  # the ticker tries again
                self._begin_queued()

    def _settle(self, job_id: str, state: JobState, reason: str) -> None:
        """Until the store knows it; the next server finds it running, and goes on, where this one ends first."""
        while True:
            with contextlib.suppress(TwoshiftError):
                if self._store.move(job_id, [JobState.RUNNING], state, reason):
                    self._store.note(job_id, f"{state}: {reason}" if reason else str(state))
                return
            if self._closed.wait(_PROGRESS_S):
                return

    @staticmethod
    def _ended(result: JobResult) -> tuple[JobState, str]:
        match result.ending:
            case Ending.DONE:
                return JobState.DONE, ""
            case Ending.STOPPED:
                return JobState.QUEUED, "stopped with its server"  # unless the store knows better
            case Ending.TOO_MANY_ERRORS:
                return JobState.FAILED, "too many rows failed; what was committed is kept"
            case Ending.DEAD_SHARDS:
                dead = (f"shard {shard} could not be done: {why}" for shard, why in result.dead.items())
                return JobState.FAILED, next(dead, "; ".join(result.failures) or "its shards could not be done")

    def _found(self, job_id: str, found: Resumed | None) -> None:
        if found is None:
            return
        with contextlib.suppress(TwoshiftError):
            self._store.note(job_id, f"{found.done:,} of {found.shards:,} shards done before")

    def _reporter(self, job_id: str, running: _Running) -> Callable[[Snapshot], None]:
        due_s, lane = 0.0, running.lane

        def report(now: Snapshot) -> None:
            nonlocal due_s
            running.last = now
            lane.follow(now)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + _PROGRESS_S
                with contextlib.suppress(TwoshiftError):  # people wait a little longer for it
                    self._store.progressed(job_id, _progress(now, lane))

        return report

    def _tick(self) -> None:
        due_s = time.monotonic() + _BEGIN_S
        while not self._closed.wait(_TICK_S):
            for lane in self.running().values():
                lane.tick()
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + _BEGIN_S
                with contextlib.suppress(TwoshiftError):  # the database does not answer: the next time
                    self._begin_queued()


def _progress(now: Snapshot, lane: JobLane) -> dict[str, Any]:
    """For people and programs that ask."""
    return {
        "shards": now.shards,
        "shards_done": now.shards_done,
        "share": now.share,
        "rows": now.rows,
        "errors": now.errors,
        "rows_per_s": now.rows_per_s,
        "elapsed_s": now.elapsed_s,
        "left_s": now.left_s,
        "chance": now.outlook.chance,
        "harvested_s": lane.device_s,
        "riding_s": lane.riding_s,
        "held": lane.why_held,
    }
