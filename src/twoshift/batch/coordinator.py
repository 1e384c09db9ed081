"""Runs a job: leases shards to workers until each is committed, through deaths, hangs, errors and signals."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Iterable
from typing import assert_never

from twoshift.batch.failure_streak import FailureStreak
from twoshift.batch.inputs import InputFile
from twoshift.batch.job_log import JobLog
from twoshift.batch.messages import (
    Begin,
    Calibrated,
    Failed,
    GiveUp,
    Loading,
    Noticed,
    Ready,
    Rechecked,
    Score,
    Scored,
    Unusable,
    WasRead,
    WorkerHeartbeat,
    summed,
)
from twoshift.batch.piece_share import Share, WholePlan
from twoshift.batch.plan import Plan
from twoshift.batch.pool import Died, FromPool, Joined, Left, WorkerPool
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.run_record import RunRecord, job_deadline_s
from twoshift.batch.run_start import EarlierRuns, StartedWorkers
from twoshift.batch.spot_notices import SpotNotice
from twoshift.batch.work_left import WorkLeft
from twoshift.batch.worker_scaling import WorkerScaling
from twoshift.batch.worker_state import WorkerState
from twoshift.errors import Broken, TryLater, TwoshiftError
from twoshift.policy.deadline import DeadlinePolicy
from twoshift.policy.leases import Committed, Dead, Finished, Lease, Retry, ShardLimits, Wait

__all__ = ["Coordinator", "Ending"]

_POLL_S = 0.2
_MOST_DEATHS = 4  # of workers that had the shard: it is the shard
_DELAY_S = 60.0
_JUDGED_ROWS = 1000  # before which a share of errors does not stop a job
_ENDING_S = 5.0  # before a machine is taken away: for what has to be written
_RATE_S = 10.0  # over which rows a second are shown


class Ending(enum.StrEnum):
    """How a run of a job ended."""

    DONE = "done"
    STOPPED = "stopped"  # by a signal; the same command goes on
    TOO_MANY_ERRORS = "too many errors"
    DEAD_SHARDS = "dead shards"  # the others are committed
    LOW_RECALL = "low recall"  # of the index, which is not searched; every row is committed


class Coordinator:
    """One run of a job over a pool of workers; `stop` may be called from a signal handler."""

    def __init__(
        self,
        plan: Plan,
        earlier: EarlierRuns,
        pool: WorkerPool,
        started: StartedWorkers,
        clock: Callable[[], float] = time.monotonic,
        files: tuple[InputFile, ...] | None = None,  # where they are not those of the stored plan
        share: Share | None = None,  # of the plan; None: all of it
    ) -> None:
        self._plan, self._pool, self._clock, self._share = plan, pool, clock, share or WholePlan()
        settings = plan.settings
        self._settings, self._files = settings, files
        limits = ShardLimits(lease_s=math.inf, max_deaths=_MOST_DEATHS)  # who hangs is found by its beats
        self._shards = self._share.policy(len(plan.shards), limits, earlier.committed)
        self._began_s = clock()
        until_s = job_deadline_s(settings, earlier.records, self._began_s)
        self._deadline = DeadlinePolicy(until_s, plan.bytes_per_s, after_s=plan.recheck_s)
        self._workers = {
            number: WorkerState(ready=ready, moved_s=self._began_s, has_room=True)
            for number, ready in started.are_loaded.items()
        }
        self._scaling = WorkerScaling(settings, self._deadline, started.load_s)
        self._worker_s, self._counted_s = started.worker_s, self._began_s  # up to then
        self._gone = WorkerHeartbeat(0, 0.0, 0, 0, 0, 0, 0)  # what workers that are no more had done
        self._lost_rows = 0  # of that: others do them again
        self._preparers = 0  # processes, at most at the same time
        self._rows = self._errors = 0
        self._earlier = earlier.errors_and_rows
        self._left = WorkLeft(plan, earlier.committed, self._earlier[1])
        self._streak = FailureStreak(settings.most_workers)
        self._causes: dict[int, str] = {}  # shard -> why it failed last
        self._stop_at_s: float | None = None
        self._ending: Ending | None = None
        self.log = JobLog()
        for number, worker in self._workers.items():
            if worker.ready:
                self._begin(number)

    def stop(self, now: bool = False) -> None:
        """Take no more shards, finish those in work inside the grace period; or give them up at once."""
        grace_s = 0.0 if now else self._settings.grace_seconds
        at_s = self._clock() + grace_s
        self._stop_at_s = at_s if self._stop_at_s is None else min(self._stop_at_s, at_s)

    def run(self, report: Callable[[JobSnapshot], None], heard: Iterable[tuple[int, FromPool]] = ()) -> Ending:
        """Until every shard is committed or dead, or the job is stopped. `heard` is what workers have said by now."""
        for number, message in heard:
            self._hear(number, message)
        self._check_budget()
        while True:
            for shard in self._share.follow(self.dead_shards, self._clock()):
                self._left.committed(shard)
            ending = self._ended()
            if ending is not None:
                return ending
            self._scale()
            self._hand_out()
            report(self.snapshot())
            for number, message in self._pool.poll(_POLL_S):
                self._hear(number, message)
            self._check_hung()

    # Events

    def _hear(self, number: int, message: FromPool) -> None:
        now_s = self._clock()
        if isinstance(message, Joined):
            self._workers[number] = WorkerState(moved_s=now_s)
            return
        worker = self._workers.get(number)
        if worker is None:
            return
        match message:
            case Loading():
                worker.has_room, worker.moved_s = True, now_s
            case Ready():
                worker.moved_s = now_s
                self._begin(number)
            case Unusable(error, is_beginning):
                if is_beginning:
                    self._cannot_begin(worker, error, now_s)
                self._end(number, worker, str(error))
            case Calibrated() | Rechecked():
                pass
            case WorkerHeartbeat():
                self._beat(worker, message, now_s)
            case WasRead(id_):
                lease = worker.leases.get(id_)
                # A shard that was lost before keeps its turn to the end, so that no other is blamed for what it does
                if lease is not None and lease.attempt == 1:
                    worker.unread.discard(id_)
            case Scored():
                self._scored(worker, message, now_s)
            case Failed():
                self._failed(worker, message, now_s)
            case Noticed(notice):
                self._noticed(number, worker, notice, now_s)
            case Died(reason):
                self._died(number, worker, reason, now_s)
            case Left():
                self._worker_left(number, worker, now_s)
            case _:
                assert_never(message)

    def _begin(self, number: int) -> None:
        plan = self._plan
        self._pool.send(number, Begin(plan.settings.output, plan.seconds_per_row, plan.model.weights, self._files))
        self._workers[number].ready = True

    def _beat(self, worker: WorkerState, beat: WorkerHeartbeat, now_s: float) -> None:
        before, worker.beat, worker.at_once = worker.beat, beat, beat.at_once
        beats = [each.beat for each in self._workers.values() if each.beat]
        self._preparers = max(self._preparers, sum(each.preparers for each in beats))
        if before is None or (before.rows, before.busy_s) != (beat.rows, beat.busy_s):
            worker.moved_s = now_s

    def _scored(self, worker: WorkerState, message: Scored, now_s: float) -> None:
        lease = worker.give_back(message.lease)
        if lease is None:
            return
        worker.moved_s = now_s
        self._streak.committed()
        self._causes.pop(lease.shard, None)
        answer = self._shards.completed(lease, now_s)
        if not isinstance(answer, Committed):
            return
        spent_s = now_s - max(lease.started_s, worker.committed_s)
        worker.committed_s = now_s
        self._deadline.observed(self._left.committed(lease.shard), max(spent_s, 1e-6), now_s)
        self._rows += message.stats.rows
        worker.committed_rows += message.stats.rows
        self._errors += message.stats.errors
        self.log.commit(message.stats, message.published)
        self._cancel(answer.cancel)
        self._check_budget()

    def _check_budget(self) -> None:
        budget, (errors, rows) = self._settings.error_budget, self._earlier
        if budget is not None and budget.is_spent(errors + self._errors, rows + self._rows, _JUDGED_ROWS):
            self._ending = Ending.TOO_MANY_ERRORS

    def _cancel(self, leases: tuple[Lease, ...]) -> None:
        """Others work on a shard that is committed now."""
        for lease in leases:
            if isinstance(lease.worker, int) and lease.worker in self._workers:
                self._pool.send(lease.worker, GiveUp(lease.id))

    def _failed(self, worker: WorkerState, message: Failed, now_s: float) -> None:
        lease = worker.give_back(message.lease)
        if lease is None:
            return
        if message.given_up:
            self._shards.released(lease, now_s)
            return
        self.log.failures[message.message] += 1
        self._causes[lease.shard] = message.message
        if not message.delayed:
            if self._streak.failed(message.message):
                self._ending = Ending.DEAD_SHARDS
            self._shards.failed(lease, now_s, permanent=message.permanent)
            return
        self._shards.released(lease, now_s)
        if self._streak.delayed():
            raise TryLater(message.message, _DELAY_S)

    def _died(self, number: int, worker: WorkerState, reason: str, now_s: float) -> None:
        if worker.leaving and not worker.leases:
            self._worker_left(number, worker, now_s)
            return
        del self._workers[number]
        reason = worker.ended or reason
        self.log.deaths.append(reason)
        self.log.marks.append((now_s - self._began_s, f"worker died: {reason}"))
        self._count_gone(worker)
        for lease in worker.leases.values():
            self._causes[lease.shard] = f"the worker died: {reason}"
        ended = self._shards.worker_died(number, now_s)
        if lost := sum(isinstance(each, Dead | Retry) for each in ended):
            self.log.failures[f"the worker died: {reason}"] += lost
        if self._streak.killed(sum(isinstance(each, Dead) for each in ended)):
            self._ending = Ending.DEAD_SHARDS
        if not worker.leases and self._streak.died_idle():
            raise Broken(
                f"{self._streak.idle_deaths} workers in a row died before they got a shard; the last reason: {reason}"
            )
        if self._stop_at_s is None and self._shards.counts().pending + self._shards.counts().leased:
            self._workers[self._pool.start()] = WorkerState(moved_s=now_s)

    def _noticed(self, number: int, worker: WorkerState, notice: SpotNotice, now_s: float) -> None:
        """Its machine goes: what it cannot end by then is given back, and on a cluster another worker begins."""
        if worker.noticed:
            return
        worker.noticed = worker.leaving = True
        self.log.notices.append(notice.why)
        self.log.marks.append((now_s - self._began_s, notice.why))
        can_end = notice.left_s >= _ENDING_S + self._deadline.mean_shard_s
        worker.give_up_s = now_s + (notice.left_s - _ENDING_S if can_end else 0.0)
        if self._settings.engine == "ray" and self._stop_at_s is None:
            self._workers[self._pool.start()] = WorkerState(moved_s=now_s)
        elif self._settings.engine != "ray":  # all workers are on that machine, as this process is
            left_s = min(self._settings.grace_seconds, max(0.0, notice.left_s - _ENDING_S))
            self._stop_at_s = min(now_s + left_s, math.inf if self._stop_at_s is None else self._stop_at_s)

    def _cannot_begin(self, worker: WorkerState, error: TwoshiftError, now_s: float) -> None:
        """Its shards are for others to do; raises the error where there is no other worker."""
        for lease in worker.leases.values():
            self._shards.released(lease, now_s)
        worker.leases.clear()
        worker.unread.clear()
        if all(each is worker or each.ended is not None for each in self._workers.values()):
            raise error

    def _worker_left(self, number: int, worker: WorkerState, now_s: float) -> None:
        del self._workers[number]
        self._count_gone(worker)
        for lease in worker.leases.values():
            self._shards.released(lease, now_s)

    def _count_gone(self, worker: WorkerState) -> None:
        if worker.beat is not None:
            self._gone = summed([self._gone, worker.beat])
            self._lost_rows += max(0, worker.beat.rows - worker.committed_rows)

    def _check_hung(self) -> None:
        now_s = self._clock()
        for number, worker in tuple(self._workers.items()):
            still_s, settings = now_s - worker.moved_s, self._settings
            if worker.leases and still_s > settings.lease_seconds:
                self._end(number, worker, f"it made no progress for {settings.lease_seconds:.3g} s")
            if worker.has_room and not worker.ready and still_s > settings.load_seconds:
                self._end(number, worker, f"the model was not loaded within {settings.load_seconds:.3g} s")

    def _end(self, number: int, worker: WorkerState, reason: str) -> None:
        """Kill a worker that is of no use; the rest happens when its death is heard of."""
        if worker.ended is None:
            worker.ended = reason
            self._pool.kill(number)

    # Decisions

    def _scale(self) -> None:
        """Add workers, or let some end: by the window, where the job has as many as that needs."""
        now_s, counts = self._clock(), self._shards.counts()
        for number in [number for number, worker in self._workers.items() if now_s >= worker.give_up_s]:
            self._workers[number].give_up_s = math.inf
            self._pool.send(number, GiveUp())
        if self._stop_at_s is not None or self._ending is not None:
            return
        own_bytes = self._left.bytes / self._share.processes
        for _ in range(self._scaling.change(self._workers, own_bytes, counts, now_s - self._began_s, now_s)):
            self._workers[self._pool.start()] = WorkerState(moved_s=now_s)
        for number, worker in self._workers.items():
            if worker.leaving and not worker.leases and worker.ended is None:
                self._end(number, worker, "released")

    def _hand_out(self) -> None:
        now_s = self._clock()
        if self._stop_at_s is not None or self._ending is not None:
            return
        for number, worker in self._workers.items():
            while worker.can_take():
                self._share.make_ready(now_s)
                answer = self._shards.lease(number, now_s)
                match answer:
                    case Lease():
                        worker.take(answer)
                        if len(worker.leases) == 1:
                            worker.moved_s = now_s
                        self._pool.send(number, Score(answer.id, answer.shard))
                    case Wait() | Finished():
                        break
                    case _:
                        assert_never(answer)

    def _ended(self) -> Ending | None:
        counts = self._shards.counts()
        if counts.committed == counts.total:
            return Ending.DONE
        if self._ending is not None:
            return self._ending
        if counts.committed + counts.dead == counts.total:
            return Ending.DEAD_SHARDS
        if self._stop_at_s is None:
            return None
        in_work = any(worker.leases for worker in self._workers.values())
        return Ending.STOPPED if not in_work or self._clock() >= self._stop_at_s else None

    # How far it is

    def dead_shards(self) -> dict[int, str]:
        """Shards that could not be done, and why."""
        causes = {**self._share.dead_elsewhere, **self._causes}
        return {shard: causes.get(shard, "unknown") for shard in self._shards.dead_shards()}

    def idle_worker(self) -> int | None:
        """A worker that is there and has nothing to do."""
        return next((number for number, worker in self._workers.items() if worker.ready and not worker.leases), None)

    def record(self, began_unix_s: float) -> RunRecord:
        """This run so far."""
        now, counts = self.snapshot(), self._shards.counts()
        total = self._total()
        return RunRecord(
            began_unix_s=began_unix_s,
            elapsed_s=now.elapsed_s,
            workers=now.workers,
            worker_s=self._worker_s,
            rows=self._rows,
            errors=self._errors,
            busy_s=total.busy_s,
            tokens=total.tokens,
            padding_tokens=total.padding_tokens,
            failed_calls=total.failed_calls,
            out_of_memory=total.out_of_memory,
            max_tokens=total.max_tokens,
            retries=counts.retries,
            speculated=counts.speculated,
            deaths=tuple(self.log.deaths),
            failures=dict(self.log.failures),
            timeline=tuple(self.log.timeline),
            usd=now.usd,
            preparers=self._preparers,
            output_s=total.output_s,
            scaling=tuple(self._scaling.log),
            notices=tuple(self.log.notices),
            marks=tuple(self.log.marks),
            lost_s=counts.lost_s + sum(worker.in_work_s(self._clock()) for worker in self._workers.values()),
        )

    def _total(self) -> WorkerHeartbeat:
        return summed([self._gone, *(worker.beat for worker in self._workers.values() if worker.beat)])

    def snapshot(self) -> JobSnapshot:
        """How far the job is now."""
        now_s, counts = self._clock(), self._shards.counts()
        total = self._total()
        rows = max(self._rows, self._left.done_rows(total.rows - self._lost_rows))
        elapsed_s = max(1e-9, now_s - self._began_s)
        self.log.add(elapsed_s, total.rows, total.busy_s)
        self._worker_s += (now_s - self._counted_s) * sum(worker.has_room for worker in self._workers.values())
        self._counted_s = now_s
        then_s, then_rows = next(
            ((at_s, rows) for at_s, rows, _ in reversed(self.log.timeline) if at_s <= elapsed_s - _RATE_S), (0.0, 0)
        )
        rate = (total.rows - then_rows) / max(1e-9, elapsed_s - then_s)
        price = self._settings.price_usd_per_hour
        workers = sum(worker.ready for worker in self._workers.values())
        return JobSnapshot(
            elapsed_s=elapsed_s,
            shards=counts.total,
            shards_done=counts.committed,
            share=self._left.share(rows),
            share_before=self._left.share_before,
            rows=rows,
            committed_rows=self._rows,
            errors=self._errors,
            rows_per_s=rate,
            tokens_per_s=total.tokens / elapsed_s,
            padding=total.padding_tokens / max(1, total.tokens + total.padding_tokens),
            workers=workers,
            usd=None if price is None else price * self._worker_s / 3600,
            outlook=self._deadline.outlook(self._left.bytes / self._share.processes, workers, now_s),
            rows_left=self._left.rows(rows),
            window_left_s=self._deadline.deadline_s - now_s,
            rows_before=self._left.rows_before,
            errors_before=self._earlier[0],
            rows_total=self._plan.rows,
        )
