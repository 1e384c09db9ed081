"""Batches on a server: looked through, run as jobs, put together; each goes on by itself after a restart."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from twoshift.batch.host import JobHost
from twoshift.batch.requests.check import Checked, check_input
from twoshift.batch.requests.fair_queue import FairQueue
from twoshift.batch.requests.files import FileDesk, new_id
from twoshift.batch.requests.finalize import NotDone, finalize
from twoshift.batch.requests.retry import write_retried
from twoshift.batch.requests.wanted import BatchWanted
from twoshift.batch.settings import LINES_FORMAT, JobSettings
from twoshift.batch_ports import BatchRecord, BatchStatus, BatchStore
from twoshift.errors import InvalidInput, NotFound, TwoshiftError
from twoshift.ports import Blobs
from twoshift.types import JobKindName, JobState

__all__ = ["BatchHost"]

_logger = logging.getLogger("twoshift.batches")
_WAKE_S, _LOOK_S, _CLEAN_S = 1.0, 5.0, 60.0  # between looks of the keeper
_YIELD_S = 2e-4
_SAME_S = 60.0  # within which the same request is one that was sent again
_SHARD_SECONDS, _SHARD_SHARE = 10.0, 0.01  # of the window: work that may be lost on each replica at its end
_BEFORE_END = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING)
_CANCELLED = NotDone("batch_cancelled", "This request was not run before the batch was cancelled.")
_EXPIRED = NotDone("batch_expired", "This request was not run within the completion window.")


_ID = "batch_"  # how clients know them


class _Leaving(Exception):
    """The server stops: the next one goes on."""


class BatchHost:
    """Any thread may call it. A batch's status is in the store; what it has done lies in its folder."""

    def __init__(
        self,
        store: BatchStore,
        files: FileDesk,
        jobs: JobHost,
        served: Callable[[], Collection[str]],  # names of models, now
    ) -> None:
        self._store, self.files, self._jobs, self._served = store, files, jobs, served
        self._clerks = FairQueue("twoshift-batches")
        self._at_work: dict[str, bool] = {}  # with a clerk; whether it is to be looked at once more
        self._lock = threading.Lock()  # guards it
        self._creating = threading.Lock()
        self.counts: dict[str, tuple[int, float]] = {}  # of each status, and when the oldest was made: as seen last
        self._closed = threading.Event()
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

    def ask(
        self,
        input_file_id: str,
        endpoint: str,
        window: str,
        metadata: dict[str, str] | None,
        output_expires_s: float | None,
        owner: str | None,
        models: tuple[str, ...] = (),  # that the key may use; none: all
        content: str = "",  # a digest of the file, where each copy of a request brings one of its own
        total: int = 0,  # requests, where they are counted already
    ) -> BatchRecord:
        """A new one, or that of the same request just now; raises NotFound, InvalidInput, OverLimit."""
        wanted = BatchWanted(input_file_id, endpoint, window, metadata, output_expires_s, content=content, total=total)
        file = self.files.get(input_file_id, owner)
        record = wanted.record(new_id(_ID), file.owner, models, self.files)
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
            raise InvalidInput("batch", str(found.status), "a batch that has ended: cancel this one first")
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
        moved = self._store.move_batch(batch_id, _BEFORE_END, BatchStatus.CANCELLING)
        if moved is None:
            status = str(self._store.batch(batch_id, owner).status)
            raise InvalidInput("batch", status, "a batch that is still running: this one can no longer be cancelled")
        self.wake(batch_id)
        self._clerks.check_first(moved.owner, batch_id)
        return moved

    def retry(
        self, batch_id: str, owner: str | None, window: str | None = None, models: tuple[str, ...] = ()
    ) -> BatchRecord:
        """A new batch of what failed, expired or was cancelled; raises NotFound, InvalidInput, OverLimit.

        `models` are those that the key may use; none: all.
        """
        found = self._store.batch(batch_id, owner)
        if not found.status.is_over or found.error_file_id is None:
            told = f"{found.status}, {found.failed} failed"
            raise InvalidInput("batch", told, "a batch that has ended with failed requests")
        wanted, models = BatchWanted.again(found, window), models or found.models
        allowance = self._jobs.allowance_of(found.owner)
        with self._creating:
            if (same := self._same(wanted.fingerprint(found.owner, models))) is not None:
                return same
            allowance.check_open(self._store.open_batches(found.owner))
            wanted.input_file_id = write_retried(self.files, found, allowance.check_storage)
            record = wanted.record(new_id(_ID), found.owner, models, self.files)
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
            is_unread = batch.status in (BatchStatus.VALIDATING, BatchStatus.CANCELLING) and batch.model is None
            (self._clerks.check if is_unread else self._clerks.end)(batch.owner, batch_id, self._look_after)
            if batch.status is BatchStatus.CANCELLING:
                self._clerks.check_first(batch.owner, batch_id)
            return
        self._leave(batch_id)

    def _look_after(self, batch_id: str) -> None:
        with self._lock:
            self._at_work[batch_id] = False
        with self._at_work_on(batch_id):
            self._advance(self._store.batch(batch_id))
        self._leave(batch_id)

    @contextlib.contextmanager
    def _at_work_on(self, batch_id: str) -> Iterator[None]:
        """One batch's failure is its own; the keeper tries again."""
        try:
            yield
        except (_Leaving, NotFound):
            pass
        except TwoshiftError as error:
            _logger.warning("%s: %s", batch_id, error)
        except Exception:
            _logger.exception("batch %s", batch_id)

    def _leave(self, batch_id: str) -> None:
        with self._lock:
            if again := self._at_work[batch_id]:
                self._at_work[batch_id] = False
            else:
                del self._at_work[batch_id]
        if again:
            self._clerks.look(batch_id, self._assign)

    def _advance(self, batch: BatchRecord) -> None:
        match batch.status:
            case BatchStatus.VALIDATING:
                self._validate(batch)
            case BatchStatus.IN_PROGRESS:
                self._follow(batch)
            case BatchStatus.FINALIZING:
                self._finish(batch, self._failure(batch.id))
            case BatchStatus.CANCELLING:
                self._cancelled(batch)
            case _:
                self._sweep(batch.id)

    def _validate(self, batch: BatchRecord) -> None:
        checked = self._checked(batch)
        if checked.errors:
            self._store.move_batch(
                batch.id, [BatchStatus.VALIDATING], BatchStatus.FAILED,
                errors=checked.errors, total=checked.total, model=checked.model,
            )  # fmt: skip
            return
        assert checked.model is not None  # noqa: S101 - a file without a request is an error
        self._jobs.add(batch.id, self._settings(batch, checked.model), batch.owner)
        values = {"total": checked.total, "model": checked.model}
        if self._store.move_batch(batch.id, [BatchStatus.VALIDATING], BatchStatus.IN_PROGRESS, **values) is None:
            self._jobs.end(batch.id)  # it was cancelled meanwhile
        self.wake(batch.id)  # its job may have ended before

    def _follow(self, batch: BatchRecord) -> None:
        if not self._jobs.has_ended(batch.id):
            if self.files.clock() < batch.expires_unix_s:
                return
            self._jobs.end(batch.id, "expired")
            if not self._jobs.has_ended(batch.id):
                return  # its end is told
        if self._jobs.get(batch.id).state is JobState.CANCELLED:
            self._finish(batch, _EXPIRED)
        elif self._store.move_batch(batch.id, [BatchStatus.IN_PROGRESS], BatchStatus.FINALIZING) is not None:
            self._finish(batch, self._failure(batch.id))

    def _cancelled(self, batch: BatchRecord) -> None:
        with contextlib.suppress(NotFound):  # it may have no job yet
            self._jobs.end(batch.id)
            if not self._jobs.has_ended(batch.id):
                return  # its end is told
        if batch.model is not None:
            self._finish(batch, _CANCELLED)
            return
        checked = self._checked(batch)  # a file that is no batch has no requests to tell of
        values = {"total": checked.total, "model": checked.model}
        if checked.errors:
            self._store.end_batch(batch.id, [], errors=checked.errors, **values)
        else:
            self._finish(batch, _CANCELLED, **values)

    def _finish(self, batch: BatchRecord, not_done: NotDone, **values: Any) -> None:
        done = finalize(self.files, batch, not_done)
        files = [file for file in (done.output, done.error) if file is not None]
        if not_done is _EXPIRED and not done.not_run:  # its window ended with the last request
            self._store.move_batch(batch.id, [BatchStatus.IN_PROGRESS], BatchStatus.FINALIZING)
        self._store.end_batch(
            batch.id, files, completed=done.completed, failed=done.failed, tokens=done.tokens,
            output_tokens=done.output_tokens, cached_tokens=done.cached_tokens, not_run=done.not_run,
            output_file_id=done.output.id if done.output else None,
            error_file_id=done.error.id if done.error else None, **values,
        )  # fmt: skip
        self._sweep(batch.id)

    def _checked(self, batch: BatchRecord) -> Checked:
        served = [name for name in self._served() if not batch.models or name in batch.models]
        with self.files.open(self.files.get(batch.input_file_id)) as file:
            return check_input(file, batch.endpoint, served, self.files.limits.max_requests, self._go_on)

    def _go_on(self) -> None:
        if self._closed.is_set():
            raise _Leaving
        time.sleep(_YIELD_S)  # live requests wait for the interpreter, too

    def _settings(self, batch: BatchRecord, model: str) -> JobSettings:
        return JobSettings(
            inputs=(self.files.location(batch.input_file_id),), output=self.files.folder(batch.id), model=model,
            endpoint=batch.endpoint, input_format="jsonl", output_format=LINES_FORMAT, due_unix_s=batch.expires_unix_s,
            shard_seconds=min(_SHARD_SECONDS, _SHARD_SHARE * (batch.expires_unix_s - batch.created_unix_s)),
        )  # fmt: skip

    def _failure(self, batch_id: str) -> NotDone:
        """What is said of requests that its job could not run."""
        reason = self._jobs.get(batch_id).reason.replace(f"{self.files.root}/", "")  # nobody's to know
        return NotDone("", f"the request was not run: {reason or 'its job has failed'}")

    def _sweep(self, batch_id: str) -> None:
        self.files.drop_folder(batch_id)
        self._store.swept_batch(batch_id)

    # For the host of jobs

    def blobs_for(self, owner: str) -> Callable[[str], Blobs]:
        """A batch's files are the server's own."""
        return self.files.blobs_for

    def check_begin(self, settings: JobSettings, owner: str) -> None:
        """It may: its folder is the server's."""

    def check_change(self, job_id: str) -> None:
        """Raises InvalidInput: it is changed as a batch."""
        raise InvalidInput("job", job_id, f"a job, not a batch: see /v1/batches/{job_id}")

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
                self._sweep(batch_id)
            self.files.sweep()
        self._cleaning.release()
