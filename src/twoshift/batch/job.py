"""A job from its settings to `_SUCCESS`: plan or resume, run, finish."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from twoshift.batch.coordinator import Coordinator, Ending
from twoshift.batch.finish import add_to_report, finish, leave, look_at_parts, read_runs, read_summary
from twoshift.batch.folder import own_folder, shared_folder
from twoshift.batch.index_report import IndexReport
from twoshift.batch.inputs import ContentSums
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_planning import JobPlanning
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.loading import JobLoading, LoadReport
from twoshift.batch.messages import Recheck, Rechecked
from twoshift.batch.parity_report import RECEIPT_PROMPTS, ParityReport
from twoshift.batch.part_records import list_output
from twoshift.batch.piece_run import PieceRun
from twoshift.batch.plan import (
    Plan,
    PlannedModel,
    described_shard,
    part_location,
)
from twoshift.batch.pool import Died, WorkerPool
from twoshift.batch.progress import NOTHING_YET, JobSnapshot
from twoshift.batch.recording import recorded
from twoshift.batch.run_record import RunRecord
from twoshift.batch.run_start import EarlierRuns, StartedWorkers
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.known import read_stats
from twoshift.batch.summary import Summary
from twoshift.batch.taken_over import take_over
from twoshift.batch.worker_startup import Interrupted, WorkerStartup
from twoshift.engine.long_texts import check_split
from twoshift.errors import Broken, TwoshiftError
from twoshift.ports import Blobs

__all__ = ["Job", "JobResult", "Resumed"]

_CLOSE_S = 5.0  # for workers to give their devices back
_RECEIPT_ROWS, _RECEIPT_SHARDS, _RECEIPT_S = 32, 4, 60.0


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was found in the output folder."""

    done: int
    shards: int
    gone: tuple[str, ...] = ()  # parts that were there when the job was done


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a run ended, and how far the job is."""

    ending: Ending
    last: JobSnapshot
    summary: Summary | None  # of the whole job, once it is done
    dead: dict[int, str]  # shard -> what it read, and why it could not be done
    failures: dict[str, int]


class Job:
    """One output folder, worked on by one coordinator at a time, or by one for each of its pieces."""

    def __init__(
        self,
        settings: JobSettings,
        blobs_for: Callable[[str], Blobs],
        pool: WorkerPool,
        lane: JobOnFleet | None = None,  # where it runs on replicas that serve
    ) -> None:
        self._loading = JobLoading(settings)
        settings = self._loading.shown_settings  # as they are written beside the parts
        self.settings, self._blobs_for, self._pool, self._lane = settings, blobs_for, pool, lane
        self._kind = kind_of(settings)
        self._output = blobs_for(settings.output)
        self._piece = None if settings.piece is None else PieceRun(settings, self._output)
        self._coordinator: Coordinator | None = None
        self._muster = WorkerStartup(settings, pool)
        self._stop_at_s = math.inf  # asked to stop: by then
        self._interrupted = False
        self._asked: tuple[bool, ...] = ()  # by another thread, and whether at once
        self._last = NOTHING_YET
        self._why = ""  # it was asked to stop
        self._sums = ContentSums(blobs_for, lambda text: self.tell(text))
        self.tell: Callable[[str], None] = lambda _: None  # what it does after the last shard
        self._planning = JobPlanning(settings, blobs_for, self._sums, self._loading, self._muster)

    @property
    def model(self) -> PlannedModel | None:
        """Once it is loaded."""
        return self._planning.model

    def run(
        self,
        found: Callable[[Resumed | None], None],
        report: Callable[[JobSnapshot], None],
        loading: Callable[[], None] = lambda: None,
        *,
        fresh: bool = False,
        retry_errors: str | None = None,
    ) -> JobResult:
        """Plan or resume, and run until it ends; raises InvalidInput, Broken.

        `loading` is called once the input is found to be usable. `retry_errors` is the folder of a job that has ended:
        what has no errors there is taken over.
        """
        if self._piece is not None:
            self._piece.check(fresh, retry_errors)
        try:
            with (own_folder if self._piece is None else shared_folder)(self.settings.output):
                return self._begun(found, report, loading, fresh, retry_errors)
        except Interrupted:
            return JobResult(Ending.STOPPED, self._last, None, {}, {})
        finally:
            if self._piece is not None:
                self._piece.close()
            self._pool.close(max(0.0, min(_CLOSE_S, self._stop_at_s - time.monotonic())))
            self._loading.close()
            self._sums.close()

    def _begun(
        self, found: Callable[[Resumed | None], None], report: Callable[[JobSnapshot], None],
        loading: Callable[[], None], fresh: bool, retry_errors: str | None,
    ) -> JobResult:  # fmt: skip
        origin = self._planning.look(fresh, retry_errors)
        began_s = time.monotonic()
        loading()
        muster = self._muster
        muster.start()
        model = muster.first_ready()
        self.settings.check_prompt_name(model.prompts)
        check_split(self.settings.too_long, model)
        plan = self._planning.freeze(origin, model)
        if origin.earlier is not None:
            done = self._committed(origin.earlier) - self._committed(plan)
            take_over(origin.earlier, plan, done, self._blobs_for)
        is_resumed = origin.existing is not None
        gone = look_at_parts(self._output, plan, list_output(self._output, self.settings.output)) if is_resumed else []
        was_done = self._output.stat(f"{self.settings.output.rstrip('/')}/_SUCCESS") is not None  # before its parts
        committed = self._committed(plan)
        self._loading.begin(plan, self._output, committed)
        found(Resumed(len(committed), len(plan.shards), tuple(gone)) if origin.known else None)
        before = read_runs(self._output, self.settings.output)
        spent_s = (time.monotonic() - began_s) * len(muster.workers)
        moved = is_resumed and origin.begun_with != plan.files
        coordinator = Coordinator(
            plan,
            EarlierRuns(committed, before, self._counted(plan, committed)),
            self._pool,
            StartedWorkers(muster.workers, spent_s, muster.load_s),
            files=plan.files if moved else None,
            share=None if self._piece is None else self._piece.begin(plan),
        )
        return self._run(plan, coordinator, report, was_done)

    def stop(self, now: bool = False) -> None:
        """Finish what is in work inside the grace period, or give it up at once; for signal handlers."""
        self._stop_at_s = time.monotonic() + (0.0 if now else self.settings.grace_seconds)
        if self._coordinator is not None:
            self._coordinator.stop(now)
        elif not self._interrupted:  # no shard is in work: there is nothing to finish
            self._interrupted = True
            raise Interrupted

    def ask_to_stop(self, now: bool = False, why: str = "") -> None:
        """The same from another thread."""
        self._why = why
        self._stop_at_s = time.monotonic() + (0.0 if now else self.settings.grace_seconds)
        self._asked, self._muster.interrupted = (now,), True
        if self._coordinator is not None:
            self._coordinator.stop(now)

    # Before the first shard

    def _committed(self, plan: Plan) -> set[int]:
        """Shards whose part is there: the only record of a commit."""
        there = self._blobs_for(plan.settings.output).names(plan.settings.output)
        return {shard for shard in range(len(plan.shards)) if Path(part_location(plan, shard)).name in there}

    def _counted(self, plan: Plan, committed: set[int]) -> tuple[int, int] | None:
        """Errors and rows of the parts, where clients see them: a run that was killed has not recorded all."""
        if not self._kind.parts_are_counted:
            return None
        errors = rows = 0
        for shard in committed:
            location = part_location(plan, shard)
            with self._output.open(location) as file:
                stats = read_stats(file, location, plan.settings.output_format)
            errors, rows = errors + stats.errors, rows + stats.rows
        return errors, rows

    # The shards, and after the last

    def _run(
        self, plan: Plan, coordinator: Coordinator, report: Callable[[JobSnapshot], None], was_done: bool
    ) -> JobResult:
        self._last = coordinator.snapshot()
        if self._last.shards_done == self._last.shards:
            summary = read_summary(self._output, self.settings.output)
            if summary is not None and self._planning.by_products.are_done:
                load = self._loaded(report)
                summary = summary if load is None else add_to_report(self._output, plan, load=load)
                return JobResult(Ending.DONE, self._last, summary, {}, {})  # it was done before
        # Until its parts are looked at anew; of several processes, another may just have written it
        if self._piece is None or (was_done and self._last.shards_done < self._last.shards):
            self._output.delete(f"{self.settings.output.rstrip('/')}/_SUCCESS")
        try:
            result = self._worked(plan, coordinator, report)
        except BaseException as error:
            reason = self._why if isinstance(error, Interrupted) else str(error) or type(error).__name__
            self._leave(plan, coordinator, "stopped" if isinstance(error, Interrupted) else "failed", reason)
            raise
        if result.summary is None:
            reasons = [
                self._why,
                *coordinator.log.notices,
                *(f"shard {shard}: {why}" for shard, why in result.dead.items()),
                *result.failures,
            ]
            self._leave(plan, coordinator, result.ending, next(filter(None, reasons), ""))
        return result

    def _leave(self, plan: Plan, coordinator: Coordinator, state: str, reason: str) -> None:
        """A report of what is done so far; not by one of several, which knows only what it has done itself."""
        if self._piece is not None:
            return
        with contextlib.suppress(TwoshiftError, OSError):  # the parts are what counts
            runs, stats = read_runs(self._output, self.settings.output), coordinator.log.stats
            summary = Summary.so_far(plan, stats, runs, coordinator.snapshot(), state, reason)
            leave(self._output, plan, msgspec.structs.replace(summary, load=self._loading.report()), stats)

    def _worked(self, plan: Plan, coordinator: Coordinator, report: Callable[[JobSnapshot], None]) -> JobResult:
        folder, name = self.settings.output, None if self._piece is None else self._piece.name
        with recorded(self._output, folder, name, lambda began_s: self._record(coordinator, began_s)) as record:

            def tell(now: JobSnapshot) -> None:
                self._last = self._loading.follow(now, coordinator.log.committed)
                report(self._last)
                record()

            self._coordinator = coordinator
            for now in self._asked:  # before it was there
                coordinator.stop(now)
            ending = coordinator.run(tell, self._muster.heard)
            self._coordinator = None
            if ending is Ending.DONE and len(there := self._committed(plan)) < len(plan.shards):
                missing = min(set(range(len(plan.shards))) - there)
                raise Broken(
                    f"{part_location(plan, missing)} was deleted while the job was running; run the same command again"
                )
            self._last = coordinator.snapshot()
            receipt = self._receipt(coordinator, plan) if ending is Ending.DONE and self._piece is None else None
        summary = None
        if ending is Ending.DONE and self._piece is not None:
            if not self._piece.may_end(self._is_ended, self._muster.check_interrupted, self.tell):
                return JobResult(ending, self._last, read_summary(self._output, folder), {}, {})
            receipt = self._receipt(coordinator, plan)
        if ending is Ending.DONE:
            runs, load = read_runs(self._output, folder), self._loaded(report)
            whole = finish(self._output, plan, coordinator.log.stats, runs, receipt, self._indexed, load)
            ending, self._last = Ending(whole.state), self._last.in_whole(whole.rows, whole.errors)
            summary = None if ending is Ending.TOO_MANY_ERRORS else whole
        dead = {shard: f"{described_shard(plan, shard)}: {why}" for shard, why in coordinator.dead_shards().items()}
        return JobResult(ending, self._last, summary, dead, dict(coordinator.log.failures))

    def _is_ended(self) -> bool:
        return read_summary(self._output, self.settings.output) is not None and self._planning.by_products.are_done

    def _indexed(self) -> IndexReport | None:
        if not self._planning.by_products:
            return None
        self._pool.close(_CLOSE_S)  # the cores and the memory are the index's now
        return self._planning.by_products.commit(self.tell)

    def _loaded(self, report: Callable[[JobSnapshot], None]) -> LoadReport | None:
        """All parts in the store; None where the job has none."""
        return self._loading.finish(None, lambda rows: report(replace(self._last, rows_loaded=rows)))

    def _record(self, coordinator: Coordinator, began_unix_s: float) -> RunRecord:
        record = coordinator.record(began_unix_s)
        if self._lane is None:
            return record
        used, live = self._lane.used(), self._lane.impact()
        return msgspec.structs.replace(record, harvested_s=used.device_s, riding_s=used.riding_s, live=live)

    def _receipt(self, coordinator: Coordinator, plan: Plan) -> ParityReport | None:
        """Rows of a few shards, scored again as live requests."""
        worker = coordinator.idle_worker()
        if worker is None or not plan.shards or not self._kind.is_rechecked:
            return None
        done = [each.shard for each in coordinator.log.stats if each.rows > each.errors]
        done = done or list(range(len(plan.shards)))  # an earlier run did them all
        shards = tuple(done[:: max(1, len(done) // _RECEIPT_SHARDS)][:_RECEIPT_SHARDS])
        rows = _RECEIPT_ROWS if self.settings.prompt is None else RECEIPT_PROMPTS
        self._pool.send(worker, Recheck(shards, rows))
        until_s = time.monotonic() + _RECEIPT_S
        while time.monotonic() < until_s:
            for number, message in self._pool.poll(0.2):
                if isinstance(message, Rechecked):
                    return message.receipt
                if isinstance(message, Died) and number == worker:
                    return ParityReport(0, None, None, 0, problem=f"the worker died ({message.reason})")
        return ParityReport(0, None, None, 0, problem=f"the worker did not answer within {_RECEIPT_S:.0f} s")
