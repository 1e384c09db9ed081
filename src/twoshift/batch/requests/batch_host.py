"""Batches on a server: looked through, run as jobs, put together; each goes on by itself after a restart."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from twoshift.batch.job_host import JobHost
from twoshift.batch.requests.batch_steps import BatchSteps, Leaving
from twoshift.batch.requests.fair_queue import FairQueue
from twoshift.batch.requests.files import StoredFiles, new_id
from twoshift.batch.requests.retry import write_retried
from twoshift.batch.requests.wanted import check_wanted, fingerprint, new_record, retried
from twoshift.batch.settings import JobSettings
from twoshift.batch_ports import BatchRecord, BatchStore, BatchWanted
from twoshift.errors import Inapplicable, NotFound, TwoshiftError, WrongState
from twoshift.ports import Blobs
from twoshift.types import BatchStatus, JobKindName

__all__ = ["BatchHost"]

_logger = logging.getLogger("twoshift.batches")
_WAKE_S, _LOOK_S, _CLEAN_S = 1.0, 5.0, 60.0  # between looks of the keeper
_SAME_S = 60.0  # within which the same request is one that was sent again
_ID = "batch_"  # how clients know them


class BatchHost:
    """Any thread may call it. A batch's status follows from its job's; what it has done lies in its folder."""

    def __init__(
        self,
        store: BatchStore,
        files: StoredFiles,
        jobs: JobHost,
        served: Callable[[], Mapping[str, str]],  # names of models and adapters, now, each with its model's
    ) -> None:
        self._store, self.files, self._jobs = store, files, jobs
        self._clerks = FairQueue("twoshift-batches")
        self._at_work: dict[str, bool] = {}  # with a clerk; whether it is to be looked at once more
        self._lock = threading.Lock()  # guards it
        self._creating = threading.Lock()
        self.counts: dict[str, tuple[int, float]] = {}  # of each status, and when the oldest was made: as seen last
        self._closed = threading.Event()
        self._steps = BatchSteps(store, files, jobs, served, self._closed)
        self._chores = {self._wake_due: _WAKE_S, self._look: _LOOK_S, self._clean_soon: _CLEAN_S}
        self._due_s = dict.fromkeys(self._chores, 0.0)  # when each is done next
        self._cleaning = threading.Lock()  # one clerk at a time
        jobs.kinds[JobKindName.REQUESTS] = self

    def start(self) -> None:
        """Go on with what an earlier server has left."""
        self._clerks.start()
        if self._jobs.is_ours:  # the keeper comes a second later
            with contextlib.suppress(TwoshiftError):
                self.keep()

    def close(self, grace_s: float) -> bool:
        """What is in work is left as it is; False where it does not end in time."""
        self._closed.set()
        return self._clerks.close(time.monotonic() + grace_s)

    def create(self, wanted: BatchWanted, owner: str | None) -> BatchRecord:
        """A new one, or that of the same request just now; raises NotFound, InvalidInput, OverLimit."""
        check_wanted(wanted)
        file = self.files.get(wanted.input_file_id, owner)
        record = new_record(wanted, new_id(_ID), file.owner, self.files)
        allowance = self._jobs.allowance_of(file.owner)
        with self._creating:  # of several that come at once, each is counted with those before it
            if (same := self._same(record.fingerprint)) is not None:
                return same
            allowance.check_open(self._store.open_batches(file.owner))
            made = self._store.add_batch(record, record.created_unix_s - _SAME_S)
        self.wake(made.id)
        return made

    def get(self, batch_id: str, owner: str | None) -> BatchRecord:
        """Raises NotFound."""
        return self._store.batch(batch_id, owner)

    def list(
        self, owner: str | None, limit: int, after: str | None, before: str | None = None, endpoint: str | None = None
    ) -> list[BatchRecord]:
        """The newest first."""
        return self._store.list_batches(owner, limit, after, before, endpoint)

    def remove(self, batch_id: str, owner: str | None) -> None:
        """With its files; raises NotFound, and InvalidInput where it is not over."""
        found = self._store.batch(batch_id, owner)
        if not found.status.is_over:
            raise WrongState("batch", str(found.status), "cancel it before you delete it")
        self.files.drop_folder(batch_id)
        self._store.remove_batch(batch_id)
        for file_id in (found.input_file_id, found.output_file_id, found.error_file_id):
            if file_id is not None:
                with contextlib.suppress(NotFound):
                    self.files.remove(file_id)

    def cancel(self, batch_id: str, owner: str | None) -> BatchRecord:
        """What is done stays; raises NotFound, and InvalidInput where it is over."""
        found = self._store.batch(batch_id, owner)
        if found.status is BatchStatus.CANCELLING:
            return found
        cancelled = self._store.cancel_batch(batch_id)
        if cancelled is None:
            status = str(self._store.batch(batch_id, owner).status)
            raise WrongState("batch", status, "a batch that has ended cannot be cancelled")
        self.wake(batch_id)
        self._clerks.check_first(cancelled.owner, batch_id)
        return cancelled

    def retry(
        self, batch_id: str, owner: str | None, window: str | None = None, models: tuple[str, ...] = ()
    ) -> BatchRecord:
        """A new batch of what failed, expired or was cancelled; raises NotFound, InvalidInput, OverLimit.

        `models` are those that the key may use; none: all.
        """
        found = self._store.batch(batch_id, owner)
        if not found.status.is_over or found.error_file_id is None:
            only = "only a batch that has ended with failed requests can be retried"
            why = f"{found.failed} of its requests have failed; {only}"
            raise WrongState("batch", str(found.status), why)
        wanted = retried(found, window, models)
        check_wanted(wanted)
        allowance = self._jobs.allowance_of(found.owner)
        with self._creating:
            if (same := self._same(fingerprint(wanted, found.owner))) is not None:
                return same
            allowance.check_open(self._store.open_batches(found.owner))
            written = replace(wanted, input_file_id=write_retried(self.files, found, allowance.check_storage))
            record = new_record(written, new_id(_ID), found.owner, self.files)
            made = self._store.add_batch(record, self.files.clock() - _SAME_S)
        self.wake(made.id)
        return made

    def wake(self, batch_id: str) -> None:
        """Something may have to be done for it."""
        with self._lock:
            if self._closed.is_set() or batch_id in self._at_work:
                self._at_work[batch_id] = True
                return
            self._at_work[batch_id] = False
        self._clerks.look(batch_id, self._assign)

    def _same(self, fingerprint: str) -> BatchRecord | None:
        """The batch of the same request just now."""
        return self._store.same_batch(fingerprint, self.files.clock() - _SAME_S)

    # A batch's life

    def _assign(self, batch_id: str) -> None:
        """To a clerk for whom it is the turn."""
        with self._at_work_on(batch_id):
            batch = self._store.batch(batch_id)
            is_unread = batch.end is None and batch.job is None and (not batch.is_cancelled or batch.model is None)
            (self._clerks.check if is_unread else self._clerks.end)(batch.owner, batch_id, self._look_after)
            if batch.status is BatchStatus.CANCELLING:
                self._clerks.check_first(batch.owner, batch_id)
            return
        self._leave(batch_id)

    def _look_after(self, batch_id: str) -> None:
        with self._lock:
            self._at_work[batch_id] = False
        with self._at_work_on(batch_id):
            self._steps.advance(self._store.batch(batch_id))
        self._leave(batch_id)

    @contextlib.contextmanager
    def _at_work_on(self, batch_id: str) -> Iterator[None]:
        """One batch's failure is its own; the keeper tries again."""
        try:
            yield
        except (Leaving, NotFound):
            pass
        except TwoshiftError as error:
            _logger.warning("%s: %s", batch_id, error)
        except Exception:
            _logger.exception("batch %s failed with an unexpected error, and is tried again", batch_id)

    def _leave(self, batch_id: str) -> None:
        with self._lock:
            if again := self._at_work[batch_id]:
                self._at_work[batch_id] = False
            else:
                del self._at_work[batch_id]
        if again:
            self._clerks.look(batch_id, self._assign)

    # For the host of jobs

    def blobs_for(self, owner: str) -> Callable[[str], Blobs]:
        """A batch's files are the server's own."""
        return self.files.blobs_for

    def check_begin(self, settings: JobSettings, owner: str) -> None:
        """It may: its folder is the server's."""

    def check_change(self, job_id: str) -> None:
        """Raises InvalidInput: it is changed as a batch."""
        raise Inapplicable("job", job_id, f"with /v1/jobs, because this job is a batch: use /v1/batches/{job_id}")

    def ended(self, job_id: str) -> None:
        """A run of its job has."""
        self.wake(job_id)

    def keep(self) -> None:
        """Wake those that have something to be done; now and then delete what nobody wants any more."""
        now_s = time.monotonic()
        for chore, every_s in self._chores.items():
            if now_s >= self._due_s[chore] and not self._closed.is_set():
                chore()
                self._due_s[chore] = now_s + every_s

    def _wake_due(self) -> None:
        for batch_id in self._store.due_batches(self.files.clock()):
            self.wake(batch_id)

    def _look(self) -> None:
        self.counts = self._store.counted_batches()
        for batch_id in self._store.stirring_batches():
            self.wake(batch_id)

    def _clean_soon(self) -> None:
        """By a clerk: it may take long, and the keeper has a claim to renew."""
        self._clerks.look("", self._clean)

    def _clean(self, _name: str) -> None:
        if not self._cleaning.acquire(blocking=False):
            return
        with self._at_work_on("files"):
            for batch_id in self._store.unswept_batches():
                self._steps.sweep(batch_id)
            self.files.sweep()
        self._cleaning.release()
