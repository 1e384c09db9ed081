"""The steps of a batch: its file is looked through, its job runs, its files are put together."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from twoshift.batch.job_host import JobHost
from twoshift.batch.requests.check import Checked, check_input
from twoshift.batch.requests.files import StoredFiles
from twoshift.batch.requests.finalize import NotDone, finalize
from twoshift.batch.settings import LINES_FORMAT, JobSettings
from twoshift.batch_ports import BatchRecord, BatchStore
from twoshift.errors import NotFound
from twoshift.types import BatchStatus, JobState

__all__ = ["BatchSteps", "Leaving"]

_YIELD_S = 2e-4
_SHARD_SECONDS, _SHARD_SHARE = 10.0, 0.01  # of the window: work that may be lost on each replica at its end
_CANCELLED = NotDone("batch_cancelled", "This request was not run before the batch was cancelled.")
_EXPIRED = NotDone("batch_expired", "This request was not run within the completion window.")


class Leaving(Exception):
    """The server stops: the next one goes on."""


class BatchSteps:
    """Level-triggered: what is next follows from what is stored, so a step that is tried again does no harm."""

    def __init__(
        self,
        store: BatchStore,
        files: StoredFiles,
        jobs: JobHost,
        served: Callable[[], Mapping[str, str]],  # names of models and adapters, now, each with its model's
        closed: threading.Event,
    ) -> None:
        self._store, self._files, self._jobs, self._served, self._closed = store, files, jobs, served, closed

    def advance(self, batch: BatchRecord) -> None:
        """As far as it goes now; raises Leaving."""
        match batch.status:
            case BatchStatus.VALIDATING:
                self._validate(batch)
            case BatchStatus.IN_PROGRESS:
                self._expire(batch)
            case BatchStatus.FINALIZING:
                if self._jobs.has_ended(batch.id):  # else its end is told
                    self._finish(batch, self._failure(batch.id))
            case BatchStatus.CANCELLING:
                self._cancel(batch)
            case BatchStatus.FAILED | BatchStatus.COMPLETED | BatchStatus.EXPIRED | BatchStatus.CANCELLED:
                self.sweep(batch.id)

    def _validate(self, batch: BatchRecord) -> None:
        if (checked := self._looked_through(batch)) is not None:
            self._jobs.add(batch.id, self._settings(batch, checked), batch.owner)

    def _expire(self, batch: BatchRecord) -> None:
        if self._files.clock() >= batch.expires_unix_s:
            self._jobs.end(batch.id, "expired")
        if self._jobs.has_ended(batch.id) and self._jobs.get(batch.id).state is JobState.CANCELLED:
            self._finish(batch, _EXPIRED)

    def _cancel(self, batch: BatchRecord) -> None:
        with contextlib.suppress(NotFound):  # it may have no job
            self._jobs.end(batch.id)
            if not self._jobs.has_ended(batch.id):
                return  # its end is told
        if batch.model or self._looked_through(batch):  # a file that is no batch has no requests to tell of
            self._finish(batch, _CANCELLED)

    def _looked_through(self, batch: BatchRecord) -> Checked | None:
        """Whose requests its file has, or None where that was its end."""
        checked = self._checked(batch)
        if checked.errors:
            self._store.end_batch(batch.id, [], errors=checked.errors, total=checked.total, model=checked.model)
            return None
        assert checked.model is not None  # noqa: S101 - a file without a request is an error
        self._store.checked_batch(batch.id, checked.model, checked.total)
        return checked

    def _finish(self, batch: BatchRecord, not_done: NotDone) -> None:
        done = finalize(self._files, batch, not_done)
        files = [file for file in (done.output, done.error) if file is not None]
        self._store.end_batch(
            batch.id, files, completed=done.completed, failed=done.failed, tokens=done.tokens,
            output_tokens=done.output_tokens, cached_tokens=done.cached_tokens, not_run=done.not_run,
            output_file_id=done.output.id if done.output else None,
            error_file_id=done.error.id if done.error else None,
        )  # fmt: skip
        self.sweep(batch.id)

    def _checked(self, batch: BatchRecord) -> Checked:
        served = {name: of for name, of in self._served().items() if not batch.models or name in batch.models}
        with self._files.open(self._files.get(batch.input_file_id)) as file:
            return check_input(file, batch.endpoint, served, self._files.limits.max_requests, self._go_on)

    def _go_on(self) -> None:
        if self._closed.is_set():
            raise Leaving
        time.sleep(_YIELD_S)  # live requests wait for the interpreter, too

    def _settings(self, batch: BatchRecord, checked: Checked) -> JobSettings:
        return JobSettings(
            inputs=(self._files.location(batch.input_file_id),), output=self._files.folder(batch.id),
            model=checked.model or "", adapters=tuple(sorted(checked.adapters)),
            endpoint=batch.endpoint, input_format="jsonl", output_format=LINES_FORMAT, due_unix_s=batch.expires_unix_s,
            shard_seconds=min(_SHARD_SECONDS, _SHARD_SHARE * (batch.expires_unix_s - batch.created_unix_s)),
        )  # fmt: skip

    def _failure(self, batch_id: str) -> NotDone:
        """What is said of requests that its job could not run."""
        reason = self._jobs.get(batch_id).reason.replace(f"{self._files.root}/", "")  # nobody's to know
        return NotDone("", f"the request was not run: {reason or 'the job of the batch has failed'}")

    def sweep(self, batch_id: str) -> None:
        """Its folder is not needed any more."""
        self._files.drop_folder(batch_id)
        self._store.swept_batch(batch_id)
