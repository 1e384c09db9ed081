"""A job from its settings to `_SUCCESS`: plan or resume, run, finish."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from twoshift.batch.coordinator import Coordinator, Ending
from twoshift.batch.finish import finish, read_runs, read_summary, write_run
from twoshift.batch.inputs import InputFile, Target, cut, kept_schema, read, resolve
from twoshift.batch.messages import Calibrate, Calibrated, FromWorker, Ready, Recheck, Rechecked, Unusable
from twoshift.batch.part import output_schema, read_stats
from twoshift.batch.plan import Plan, PlannedModel, part_location, plan_location, read_plan, refuse_changes
from twoshift.batch.pool import Died, WorkerPool
from twoshift.batch.progress import NOTHING_YET, Snapshot
from twoshift.batch.receipt import Receipt
from twoshift.batch.scorer import readable_rows
from twoshift.batch.settings import JobSettings
from twoshift.batch.summary import Summary
from twoshift.errors import Broken, InvalidInput, TwoshiftError
from twoshift.ports import PARITY_BAR, Blobs, RuntimeInfo

__all__ = ["Job", "JobResult", "Resumed"]

_SAMPLE_ROWS, _SAMPLE_FILES = 64, 4  # that are scored to size the shards
_SAMPLE_BYTES = 1 << 20
_MOST_SHARD_ROWS = 1_000_000  # redoing one must stay cheap
_RECORD_S = 30.0  # between records of a run
_EARLY_DEATHS = 3  # of workers that had no shard yet: another one would die, too
_CLOSE_S = 5.0  # for workers to give their devices back
_RECEIPT_ROWS, _RECEIPT_SHARDS, _RECEIPT_S = 32, 4, 60.0


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was found in the output folder."""

    done: int
    shards: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a run ended, and how far the job is."""

    ending: Ending
    last: Snapshot
    summary: Summary | None  # of the whole job, once it is done
    dead: dict[int, str]  # shard -> what it read, and why it could not be done
    failures: dict[str, int]


class _NotBegun(Exception):
    """Asked to stop before the first shard."""


class Job:
    """One output folder, worked on by one coordinator at a time."""

    def __init__(self, settings: JobSettings, blobs_for: Callable[[str], Blobs], pool: WorkerPool) -> None:
        self.settings, self._blobs_for, self._pool = settings, blobs_for, pool
        self._output = blobs_for(settings.output)
        self._coordinator: Coordinator | None = None
        self._workers: dict[int, bool] = {}  # number -> whether its model is loaded
        self._early_deaths = 0
        self._row_bytes = 100.0  # of the rows that were looked at
        self._stopping: bool | None = None  # asked to stop; True: at once
        self._stop_at_s = math.inf

    def run(
        self,
        found: Callable[[Resumed | None], None],
        report: Callable[[Snapshot], None],
        *,
        fresh: bool = False,
        retry_errors: str | None = None,
    ) -> JobResult:
        """Plan or resume, and run until it ends; raises InvalidInput, Broken.

        `retry_errors` is the folder of a job that has ended: what has no errors there is taken over.
        """
        with _one_coordinator(self.settings.output):
            _remove_leftovers(self.settings.output)
            existing = self._existing(fresh)
            earlier = None if retry_errors is None else self._earlier(retry_errors)
            files = self._files()
            self._workers = dict.fromkeys((self._pool.start() for _ in range(self.settings.workers)), False)
            try:
                first, info = self._first_ready()
                plan, per_row_s = self._planned(existing or earlier, files, info, first)
                if earlier is not None:
                    self._take_over(earlier, plan)
                committed = self._committed(plan)
                found(Resumed(len(committed), len(plan.shards)) if existing or earlier else None)
                before = read_runs(self._output, self.settings.output)
                self._coordinator = Coordinator(plan, committed, self._pool, self._workers, per_row_s, before=before)
                if self._stopping is not None:
                    self._coordinator.stop(self._stopping)
                return self._run(plan, self._coordinator, report)
            except _NotBegun:
                return JobResult(Ending.STOPPED, NOTHING_YET, None, {}, {})
            finally:
                self._pool.close(max(0.0, min(_CLOSE_S, self._stop_at_s - time.monotonic())))
                _remove_leftovers(self.settings.output)

    def stop(self, now: bool = False) -> None:
        """Finish what is in work inside the grace period, or give it up at once; for signal handlers."""
        self._stopping = now
        self._stop_at_s = time.monotonic() + (0.0 if now else self.settings.grace_seconds)
        if self._coordinator is not None:
            self._coordinator.stop(now)
        elif now:  # a long list of files is not waited for
            raise KeyboardInterrupt

    # Before the first shard

    def _existing(self, fresh: bool) -> Plan | None:
        plan = read_plan(self._output, self.settings.output)
        if plan is not None and fresh:
            raise InvalidInput("output", self.settings.output, "a new output folder: this one holds a job already")
        if plan is None:
            self._refuse_others_files()
        return plan

    def _refuse_others_files(self) -> None:
        folder = f"{self.settings.output.rstrip('/')}/"
        try:
            names = {blob.location.removeprefix(folder) for blob in self._output.list(folder)}
        except InvalidInput:  # there is nothing
            return
        if shown := {name for name in names if not name.startswith((".", "_"))}:
            accepted = f"an empty or new folder; this one holds {min(shown)} and no job's plan"
            raise InvalidInput("output", self.settings.output, accepted)

    def _files(self) -> tuple[InputFile, ...]:
        """The input; what lies in this very job's output folder, which may be in an input folder, is none of it."""
        found = resolve(self.settings.inputs, self._blobs_for, self.settings.input_format)
        return tuple(file for file in found if not _is_below(file.location, self.settings.output))

    def _first_ready(self) -> tuple[int, RuntimeInfo]:
        """A worker whose model is loaded."""
        return next((number, message.info) for number, message in self._heard() if isinstance(message, Ready))

    def _heard(self) -> Iterator[tuple[int, FromWorker | Died]]:
        """What workers say before there is a coordinator, the dead replaced; raises where it cannot go on."""
        while True:
            if self._stopping is not None:
                raise _NotBegun
            for number, message in self._pool.poll(0.2):
                if isinstance(message, Unusable):
                    text = message.message
                    raise InvalidInput("model", self.settings.model, text) if message.is_input else Broken(text)
                if isinstance(message, Died) and self._stopping is None:
                    del self._workers[number]
                    self._early_deaths += 1
                    if self._early_deaths >= _EARLY_DEATHS:
                        raise Broken(f"workers died before the first shard, the last of them: {message.reason}")
                    self._workers[self._pool.start()] = False
                if isinstance(message, Ready):
                    self._workers[number] = True
                yield number, message

    def _planned(
        self, existing: Plan | None, files: tuple[InputFile, ...], info: RuntimeInfo, worker: int
    ) -> tuple[Plan, float]:
        model = PlannedModel.of(info)
        if existing is not None:
            refuse_changes(existing, self.settings, model, files)
            plan = msgspec.structs.replace(existing, settings=self.settings)
            self._output.create(plan_location(self.settings.output), msgspec.json.encode(plan))
            return plan, existing.seconds_per_row
        measured = self._calibrated(files, worker)
        per_row_s = measured.seconds_per_row
        model = msgspec.structs.replace(model, parity=measured.parity)
        plan = self._new_plan(files, model, measured)
        if not self._output.create(plan_location(self.settings.output), msgspec.json.encode(plan)):
            raise InvalidInput("output", self.settings.output, "a folder in which no other job was begun just now")
        return plan, per_row_s

    def _new_plan(self, files: tuple[InputFile, ...], model: PlannedModel, measured: Calibrated) -> Plan:
        settings = self.settings
        rows = max(1, min(_MOST_SHARD_ROWS, int(settings.shard_seconds / measured.seconds_per_row)))
        target = Target(rows=min(rows, settings.shard_rows or rows), row_bytes=self._row_bytes)
        shards = cut(files, self._blobs_for, target)
        results = {} if measured.schema is None else _fields(measured.schema)
        kept = kept_schema(files, self._blobs_for, settings.keep)
        schema = output_schema(kept, results)
        return Plan.make(settings, model, files, shards, schema, measured.seconds_per_row)

    def _calibrated(self, files: tuple[InputFile, ...], worker: int) -> Calibrated:
        rows = list(self._sample(files))
        measured = self._answered(worker, Calibrate(rows))
        if measured.schema is None and rows:
            accepted = f"rows that the model can score; of the first {len(rows)} none: {measured.error}"
            raise InvalidInput("inputs", files[0].location, accepted)
        if measured.parity is not None and not measured.parity >= PARITY_BAR:
            accepted = f"fp32: parity with it is {measured.parity:.4f} on the job's first {len(rows)} rows, and at "
            raise InvalidInput("precision", self.settings.precision, f"{accepted}least {PARITY_BAR} is wanted")
        return measured

    def _answered(self, worker: int, message: Calibrate) -> Calibrated:
        """What a worker answers; another one, where it dies of that."""
        self._pool.send(worker, message)
        for number, heard in self._heard():
            if isinstance(heard, Calibrated):
                return heard
            if isinstance(heard, Died) and number == worker:
                worker, _ = self._first_ready()
                self._pool.send(worker, message)
        raise AssertionError

    def _sample(self, files: tuple[InputFile, ...]) -> Iterator[Any]:
        """Rows of a few files, as the model takes them; their size is noted on the way.

        Where those have none to score it looks further: without one the result columns are not known.
        """
        taken = size = found = 0
        chosen = files[:: max(1, len(files) // _SAMPLE_FILES)][:_SAMPLE_FILES]
        for number, file in enumerate((*chosen, *files)):
            if number >= len(chosen) and found:
                break
            blobs, columns = self._blobs_for(file.location), self.settings.model_columns
            for batch in read(file.head(), file, blobs, columns, _SAMPLE_ROWS, _SAMPLE_BYTES):
                taken, size = taken + batch.num_rows, size + batch.nbytes
                rows = [row for row in readable_rows(batch, self.settings) if row is not None][:_SAMPLE_ROWS]
                yield from rows
                found += len(rows)
                if rows or number < len(chosen):
                    break
        self._row_bytes = size / taken if taken else 100.0

    def _earlier(self, folder: str) -> Plan:
        plan = read_plan(self._blobs_for(folder), folder)
        if plan is None:
            raise InvalidInput("retry_errors", folder, "the output folder of a job")
        if os.path.abspath(folder) == os.path.abspath(self.settings.output):  # noqa: PTH100 - links do not matter here
            raise InvalidInput("output", self.settings.output, "another folder than the one whose errors are retried")
        return msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, output=folder))

    def _take_over(self, earlier: Plan, plan: Plan) -> None:
        """Publish the earlier job's parts that have no errors; a link where both lie on this machine's disks."""
        blobs = self._blobs_for(earlier.settings.output)
        for shard in self._committed(earlier) - self._committed(plan):
            location, target = part_location(earlier, shard), part_location(plan, shard)
            with blobs.open(location) as file:
                if read_stats(file, location, plan.settings.output_format).errors:
                    continue
                staged = self._output.staging(target) / f"{Path(target).name}.{uuid.uuid4().hex}"
                try:
                    os.link(location, staged)
                except OSError:  # another disk, or no disk at all
                    file.seek(0)
                    with staged.open("wb") as copy:
                        shutil.copyfileobj(file, copy)
            self._output.publish(staged, target)

    def _committed(self, plan: Plan) -> set[int]:
        """Shards whose part is there: the only record of a commit."""
        there = self._blobs_for(plan.settings.output).names(plan.settings.output)
        return {shard for shard in range(len(plan.shards)) if Path(part_location(plan, shard)).name in there}

    # The shards, and after the last

    def _run(self, plan: Plan, coordinator: Coordinator, report: Callable[[Snapshot], None]) -> JobResult:
        folder, began_s, due_s = self.settings.output, time.time(), time.monotonic() + _RECORD_S
        last = coordinator.snapshot()
        if last.shards_done == last.shards and (summary := read_summary(self._output, folder)) is not None:
            return JobResult(Ending.DONE, last, summary, {}, {})  # it was done before
        number = len(self._output.names(f"{folder.rstrip('/')}/_twoshift/runs"))

        def tell(now: Snapshot) -> None:
            nonlocal due_s
            report(now)
            if time.monotonic() >= due_s:
                with contextlib.suppress(TwoshiftError):  # the parts are what counts; the next record may fit
                    write_run(self._output, folder, number, coordinator.record(began_s))
                due_s = time.monotonic() + _RECORD_S

        ending = coordinator.run(tell)
        last = coordinator.snapshot()
        receipt = self._receipt(coordinator) if ending is Ending.DONE else None
        with contextlib.suppress(TwoshiftError):
            write_run(self._output, folder, number, coordinator.record(began_s))
        summary = None
        if ending is Ending.DONE:
            runs = read_runs(self._output, folder)
            summary = finish(self._output, plan, coordinator.log.stats, runs, receipt, lambda _: report(last))
        dead = {shard: f"{_described(plan, shard)}: {why}" for shard, why in coordinator.dead_shards().items()}
        return JobResult(ending, last, summary, dead, dict(coordinator.log.failures))

    def _receipt(self, coordinator: Coordinator) -> Receipt | None:
        """Rows of a few shards of this run, scored again as live requests."""
        done = [each.shard for each in coordinator.log.stats if each.rows > each.errors]
        worker = coordinator.idle_worker()
        if worker is None or not done:
            return None
        shards = tuple(done[:: max(1, len(done) // _RECEIPT_SHARDS)][:_RECEIPT_SHARDS])
        self._pool.send(worker, Recheck(shards, _RECEIPT_ROWS))
        until_s = time.monotonic() + _RECEIPT_S
        while time.monotonic() < until_s and self._stopping is None:
            for number, message in self._pool.poll(0.2):
                if isinstance(message, Rechecked):
                    return message.receipt
                if isinstance(message, Died) and number == worker:
                    return None
        return None


@contextlib.contextmanager
def _one_coordinator(output: str) -> Iterator[None]:
    """Holds a lock on a local folder; elsewhere two would do the same work twice, and neither would harm the other."""
    if "://" in output:
        yield
        return
    folder = Path(output) / "_twoshift"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+")
    except OSError as error:
        raise InvalidInput("output", output, f"a folder that can be written ({error.strerror})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            accepted = f"a folder that no other run works on (process {file.read()} does)"
            raise InvalidInput("output", output, accepted) from error
        with contextlib.suppress(OSError):  # a full disk: it is locked all the same
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def _remove_leftovers(output: str) -> None:
    """What writers that were killed had begun in a local folder, which is ours alone now; none of it is published."""
    if "://" in output:
        return
    folder = Path(output)
    begun = [*folder.glob("_twoshift/staging/part-*"), *folder.glob(".*.twoshift-tmp")]
    for path in (*begun, *folder.glob("_twoshift/**/.*.twoshift-tmp")):
        with contextlib.suppress(OSError):  # it does no harm where it is
            path.unlink()


def _is_below(location: str, folder: str) -> bool:
    if "://" in folder:
        return location.startswith(f"{folder.rstrip('/')}/")
    return "://" not in location and Path(os.path.abspath(location)).is_relative_to(os.path.abspath(folder))  # noqa: PTH100


def _fields(schema: bytes) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(schema))}


def _described(plan: Plan, shard: int) -> str:
    pieces = plan.shards[shard]
    named = itertools.islice((f"{plan.files[p.file].location} [{p.start}:{p.stop}]" for p in pieces), 3)
    return ", ".join(named)
