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
from twoshift.batch.inputs import kept_schema, resolve
from twoshift.batch.job import Job, JobResult, Resumed
from twoshift.batch.lane import JobLane, Replica
from twoshift.batch.progress import Snapshot
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.errors import InvalidInput, TwoshiftError
from twoshift.ports import Blobs, JobRecord, JobStore
from twoshift.types import JobState

__all__ = ["JobHost"]

_logger = logging.getLogger("twoshift.jobs")
_TICK_S = 0.05
_PROGRESS_S = 1.0  # between two entries in the store
_MOST_AT_ONCE = 16
_NOT_HERE = ("engine", "address", "resources", "device", "precision", "threads", "trust_pickle")  # the server's to say


@dataclass(slots=True)
class _Running:
    """A job with a thread."""

    job: Job
    lane: JobLane
    thread: threading.Thread


class JobHost:
    """Any thread may call it. The store remembers which jobs there are; what they have done lies in their folders."""

    def __init__(
        self,
        store: JobStore,
        replicas_of: Callable[[str], Sequence[Replica]],  # raises NotFound
        blobs_for: Callable[[str], Blobs],
        check: Callable[[JobSettings], None] = lambda _: None,  # raises where its files are not to be touched
    ) -> None:
        self._store, self._replicas_of, self._blobs_for, self._check = store, replicas_of, blobs_for, check
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

    def submit(self, data: dict[str, Any]) -> JobRecord:
        """A new job, or the very same one that is not over yet; raises InvalidInput, NotFound."""
        settings = self._settings(data)
        now_s = time.time()
        encoded = msgspec.to_builtins(settings)
        if (same := self._of_output(settings.output)) is not None:
            if msgspec.convert(same.settings, JobSettings) != settings:
                raise InvalidInput("output", settings.output, f"another folder: {same.id} works on this one")
            return same
        self._look(settings)
        record = JobRecord(f"job-{uuid.uuid4().hex[:12]}", encoded, JobState.QUEUED, now_s, now_s)
        self._store.add(record)
        self._store.note(record.id, f"{settings.model} over {', '.join(settings.inputs)} to {settings.output}")
        self._begin_queued()
        return self._store.get(record.id)

    def get(self, job_id: str) -> JobRecord:
        """Raises NotFound."""
        return self._store.get(job_id)

    def list(self, limit: int = 100, after: str | None = None) -> list[JobRecord]:
        """The newest first."""
        return self._store.list(limit, after)

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

    def close(self, grace_s: float) -> None:
        """Stop every job; the next server goes on with them."""
        self._closed.set()
        with self._lock:
            running = list(self._running.values())
        for each in running:
            each.job.ask_to_stop(now=bool(each.lane.why_held))  # which would not get on in any time
        until_s = time.monotonic() + grace_s
        for each in running:
            each.thread.join(max(0.0, until_s - time.monotonic()))
        if self._ticker.is_alive():
            self._ticker.join()
        self._store.close()

    def _settings(self, data: dict[str, Any]) -> JobSettings:
        for name in _NOT_HERE:
            if data.get(name) is not None:
                raise InvalidInput(name, data[name], "a job without it: it runs on the server's own replicas")
        settings = make_settings(data, "job")
        replicas = self._replicas_of(settings.model)
        self._check(settings)
        return msgspec.structs.replace(settings, workers=len(replicas))

    def _of_output(self, output: str) -> JobRecord | None:
        """The job that is not over and writes there."""
        unfinished = self._store.unfinished()
        return next((each for each in unfinished if each.settings["output"].rstrip("/") == output.rstrip("/")), None)

    def _look(self, settings: JobSettings) -> None:
        """What is wrong with its input is told at once; raises InvalidInput."""
        files = resolve(settings.inputs, self._blobs_for, settings.input_format)
        kept_schema(files, self._blobs_for, (*settings.keep, *(settings.model_columns or ())))

    def _stop(self, job_id: str, expected: Sequence[JobState], then: JobState, now: bool) -> JobRecord:
        """The store says it first: whoever starts this server again must know."""
        if not self._store.move(job_id, expected, then, str(then)):
            raise InvalidInput("job", str(self._store.get(job_id).state), "one that is not over, or stopped already")
        self._store.note(job_id, str(then))
        with self._lock:
            running = self._running.get(job_id)
        if running is not None:
            running.job.ask_to_stop(now)
        return self._store.get(job_id)

    def _begin_queued(self) -> None:
        with self._lock:
            for record in self._store.unfinished():
                if len(self._running) >= _MOST_AT_ONCE or self._closed.is_set():
                    return
                if record.id not in self._running and self._store.move(record.id, [JobState.QUEUED], JobState.RUNNING):
                    self._begin(record)

    def _begin(self, record: JobRecord) -> None:
        try:
            settings = msgspec.convert(record.settings, JobSettings)
            lane = JobLane(settings, self._replicas_of(settings.model))
        except (TwoshiftError, msgspec.ValidationError) as error:  # the server serves something else now
            self._store.move(record.id, [JobState.RUNNING], JobState.FAILED, str(error))
            return
        job = Job(settings, self._blobs_for, EnginePool(settings, lane, self._blobs_for), lane)
        thread = threading.Thread(target=self._run, args=(record.id,), name=f"twoshift-{record.id}", daemon=True)
        self._running[record.id] = _Running(job, lane, thread)
        thread.start()

    def _run(self, job_id: str) -> None:
        with self._lock:
            running = self._running[job_id]
        state, reason = JobState.FAILED, ""
        try:
            result = running.job.run(lambda found: self._found(job_id, found), self._reporter(job_id, running.lane))
            state, reason = self._ended(result)
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
            with contextlib.suppress(TwoshiftError):  # the next server finds it running, and goes on
                if self._store.move(job_id, [JobState.RUNNING], state, reason):
                    self._store.note(job_id, f"{state}: {reason}" if reason else str(state))
        if not self._closed.is_set():
            self._begin_queued()

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
                shard, why = next(iter(result.dead.items()))
                return JobState.FAILED, f"shard {shard} could not be done: {why}"

    def _found(self, job_id: str, found: Resumed | None) -> None:
        if found is not None:
            self._store.note(job_id, f"{found.done:,} of {found.shards:,} shards done before")

    def _reporter(self, job_id: str, lane: JobLane) -> Callable[[Snapshot], None]:
        due_s = 0.0

        def report(now: Snapshot) -> None:
            nonlocal due_s
            lane.follow(now)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + _PROGRESS_S
                with contextlib.suppress(TwoshiftError):  # people wait a little longer for it
                    self._store.progressed(job_id, _progress(now, lane))

        return report

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S):
            for lane in self.running().values():
                lane.tick()


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
