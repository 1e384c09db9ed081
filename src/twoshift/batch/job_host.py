"""Jobs on a server: they run in the batch lane of its replicas, and go on by themselves after a restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

from twoshift.batch.allowance import Allowance
from twoshift.batch.claimed_jobs import CLAIM_S, ClaimedJobs
from twoshift.batch.hosted import HostedKind, HostedTables
from twoshift.batch.job_intake import JobIntake
from twoshift.batch.job_looks import JobLooks
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_queue import JobQueue
from twoshift.batch.job_seats import LiveFleet, Payer, Used
from twoshift.batch.settings import JobSettings
from twoshift.batch.warm import warm
from twoshift.closable_thread import ClosableThread
from twoshift.errors import InvalidInput, TwoshiftError, WrongState
from twoshift.policy.job_states import JobMove
from twoshift.ports import Claim, JobRecord, JobStore
from twoshift.prediction_ports import Prediction
from twoshift.types import JobKindName

__all__ = ["JobHost"]

_KEEP_S = 1.0  # between two words with the store: the claim, how far jobs are
_CLOSE_S = 2.0  # that a database without an answer may hold up the end


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
        scored: Callable[[Prediction], None] = lambda _scored: None,  # told what came of predictions
    ) -> None:
        self.allowance_of = allowance_of
        self.kinds: dict[JobKindName, HostedKind] = {JobKindName.TABLE: HostedTables(allowance_of)}
        self._jobs = ClaimedJobs(store, claim)
        self._queue = JobQueue(self._jobs, self.kinds, fleet_of, allowance_of)
        self._intake = JobIntake(self._jobs, fleet_of, allowance_of, check_notify, self._queue.begin_queued)
        self._queue.scored = scored
        self.outlooks = self._queue.running.outlooks
        self.overdue = 0  # jobs that wait although their windows have ended, as the store last said
        self.looks = JobLooks(self._jobs, self.kinds, allowance_of)
        self._keeper = ClosableThread(self._keep, "twoshift-keeper", _CLOSE_S)

    def start(self) -> None:
        """Go on with what an earlier server has left, once it is gone; raises TryLater."""
        warm()
        self._look_at_claim()
        self._queue.start()
        self._keeper.start()

    def close(self, grace_s: float) -> bool:
        """Stop every job; the next server goes on with them. False where one has not ended in time."""
        in_time = self._queue.close(grace_s)
        self._keeper.close()  # nothing runs any more
        self._jobs.close()
        return in_time

    @property
    def is_ours(self) -> bool:
        """Whether this server has the store."""
        return self._jobs.is_ours and not self._queue.is_closed

    def check_ours(self) -> None:
        """Raises Elsewhere where the jobs are another server's."""
        _ = self._jobs.store

    def submit(self, data: dict[str, Any], owner: str = "", job_id: str | None = None) -> JobRecord:
        """A new job, or the very same one that is not over yet, or of that id; raises InvalidInput, NotFound."""
        return self._intake.submit(data, owner, job_id)

    def check(self, data: dict[str, Any], owner: str = "") -> None:
        """Whether such a job could be submitted, as far as its settings tell; raises InvalidInput, NotFound."""
        self._intake.check(data, owner)

    def add(self, job_id: str, settings: JobSettings, owner: str) -> None:
        """A job of the server's own, once, however often it is asked for."""
        self._intake.add(job_id, settings, owner)

    def end(self, job_id: str, reason: str = "") -> None:
        """Stop a job of the server's own now and for good, unless it is over."""
        with contextlib.suppress(InvalidInput):
            self._stop(job_id, JobMove.END, now=True, reason=reason)

    def has_ended(self, job_id: str) -> bool:
        """Whether nothing works on it any more, nor ever will."""
        return job_id not in self._queue.running and self._jobs.store.get(job_id).state.is_over

    def get(self, job_id: str) -> JobRecord:
        """Raises NotFound."""
        return self._jobs.store.get(job_id)

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        """The newest first, of that owner or of all."""
        return self._jobs.store.list(limit, after, owner)

    def notes(self, job_id: str) -> list[tuple[float, str]]:
        """Its log; raises NotFound."""
        self._jobs.store.get(job_id)
        return self._jobs.store.notes(job_id)

    def pause(self, job_id: str) -> JobRecord:
        """Stop it after the shards in work, until it is told to go on; raises NotFound, InvalidInput."""
        self._check_change(job_id)
        return self._stop(job_id, JobMove.PAUSE, now=False)

    def cancel(self, job_id: str) -> JobRecord:
        """Stop it now and for good; what it has committed stays. Raises NotFound, InvalidInput."""
        self._check_change(job_id)
        return self._stop(job_id, JobMove.CANCEL, now=True)

    def resume(self, job_id: str) -> JobRecord:
        """Go on with one that was paused, or that failed; raises NotFound, InvalidInput."""
        self._check_change(job_id)
        store = self._jobs.store
        if not store.move(job_id, JobMove.RESUME, "resumed"):
            why = "only a job that is paused or has failed can be resumed"
            raise WrongState("job", str(store.get(job_id).state), why)
        store.note(job_id, "resumed")
        self._queue.begin_queued()
        return store.get(job_id)

    def running(self) -> dict[str, JobOnFleet]:
        """The lanes of the jobs that run."""
        return {job_id: each.lane for job_id, each in self._queue.running.all().items()}

    def backlog(self, model: str) -> list[tuple[int, float, int]]:
        """Of each job that runs over a model: rows left, seconds left of its window (infinite without one), and the
        replicas that it asks for.

        Those that are held back for their hours are not in it: more replicas would not help them.
        """
        at_work = [each for each in self._queue.running.all().values() if not each.lane.why_held]
        return [
            (each.last.rows_left, each.last.window_left_s, each.asked_workers)
            for each in at_work
            if each.lane.model == model
        ]

    def used(self) -> dict[Payer, Used]:
        """By owner and model: what jobs have had of the devices since this start."""
        return self._queue.running.used()

    def look_again(self) -> None:
        """Begin what has waited for a model that is there now."""
        self._queue.look_again()

    def let_go(self, model: str, why: str, timeout_s: float) -> bool:
        """Hand the jobs of a model that goes back to the queue; False where one has not stopped in time."""
        return self._queue.let_go(model, why, timeout_s)

    def _check_change(self, job_id: str) -> None:
        self.kinds[self._jobs.store.get(job_id).kind].check_change(job_id)

    def _stop(self, job_id: str, move: JobMove, now: bool, reason: str = "") -> JobRecord:
        """The store says it first: whoever starts this server again must know."""
        store, reason = self._jobs.store, reason or str(move.after)
        if not store.move(job_id, move, reason):
            why = f"it cannot be {move.after} any more"
            raise WrongState("job", str(store.get(job_id).state), why)
        store.note(job_id, reason)
        running = self._queue.running.get(job_id)
        if running is not None:
            running.job.ask_to_stop(now or bool(running.lane.why_held), str(move.after))
        return store.get(job_id)

    def _keep(self, closed: Event) -> None:
        due_s = time.monotonic() + CLAIM_S
        while not closed.wait(_KEEP_S):
            is_due = time.monotonic() >= due_s
            due_s = time.monotonic() + CLAIM_S if is_due else due_s
            with contextlib.suppress(TwoshiftError):  # the database does not answer: the next time
                if self._jobs.is_ours or is_due:
                    self._look_at_claim()
                if self._jobs.is_ours:
                    self._queue.tell()
                    self._queue.running.hand_back()
                    if is_due:
                        self._queue.begin_queued()
                        self.overdue = self._jobs.store.overdue()
            for kind in self.kinds.values() if self.is_ours else ():
                with contextlib.suppress(TwoshiftError):
                    kind.keep()
        with contextlib.suppress(TwoshiftError):  # then others have to wait until its time has passed
            self._jobs.release()

    def _look_at_claim(self) -> None:
        if self._jobs.is_ours:
            if not self._jobs.renew():
                self._queue.stop_all()
        elif not self._queue.running.all() and self._jobs.take():
            self._queue.go_on()
