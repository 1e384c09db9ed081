"""Files and batches as a server remembers them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twoshift.policy.job_states import batch_status
from twoshift.types import BatchStatus, JobState

__all__ = [
    "BatchRecord",
    "BatchStore",
    "BatchWanted",
    "FileRecord",
    "FileStatus",
    "FileStore",
    "InputColumn",
    "InputLook",
    "JobFailures",
]


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of a job's input."""

    name: str
    type: str  # as Arrow names it


@dataclass(frozen=True, slots=True)
class InputLook:
    """What a job's input holds."""

    files: int
    size_bytes: int
    rows: int
    is_exact: bool  # whether the rows are counted; estimated by the first of them where not
    columns: list[InputColumn]


@dataclass(frozen=True, slots=True)
class JobFailures:
    """Rows of a job without a result, as far as its parts are committed."""

    kinds: dict[str, int]  # how many of each kind of error
    rows: list[tuple[str, str]]  # the first of them: their kept values, and why
    parts: int
    parts_read: int  # of a very large job: the first


class FileStatus(enum.StrEnum):
    """What has become of a file; clients see those that are processed."""

    UPLOADING = "uploading"  # its bytes may not be there
    PROCESSED = "processed"
    DELETING = "deleting"  # its bytes may still be there


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file; its bytes are a blob of its id."""

    id: str
    owner: str  # the tenant; empty where there are no keys
    created_unix_s: float
    filename: str = ""
    purpose: str = "batch"
    size_bytes: int = 0
    sha256: str = ""
    status: FileStatus = FileStatus.UPLOADING
    expires_unix_s: float | None = None


@dataclass(frozen=True, slots=True)
class BatchWanted:
    """A batch as it is asked for."""

    input_file_id: str
    endpoint: str
    window: str
    metadata: dict[str, str] | None = None
    output_expires_s: float | None = None  # after which its files go
    models: tuple[str, ...] = ()  # that the key may use; none: all
    content: str = ""  # a digest of its file, where each copy of a request brings one of its own
    total: int = 0  # requests, where they are counted already
    retry_of: str = ""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch; its job has the same id, and what that has done lies in the batch's folder until its files are there.

    Its status is not stored: it follows from its job, from whether somebody cancelled it, and from its end.
    """

    id: str
    owner: str
    endpoint: str
    input_file_id: str
    window: str
    created_unix_s: float
    expires_unix_s: float
    fingerprint: str  # of what was asked: the same for a request that is sent again
    output_id: str  # that its files will have
    error_id: str
    output_expires_s: float  # after which its files go
    metadata: dict[str, str] | None = None
    models: tuple[str, ...] = ()  # that its key may use; none: all
    end: BatchStatus | None = None  # how it ended; None: it has not
    job: JobState | None = None  # None: it has no job yet, or never had one
    model: str | None = None  # None: its file has not been looked through
    errors: list[dict[str, Any]] | None = None  # of its input
    output_file_id: str | None = None  # once they are there
    error_file_id: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0  # of its requests
    output_tokens: int = 0  # that were generated
    cached_tokens: int = 0  # of `tokens`: read before, for another request
    not_run: int = 0  # of `failed`: cancelled or expired before they were
    times: dict[str, float] = field(default_factory=dict[str, float])  # when it came to a status
    progress: dict[str, Any] | None = None  # of its job

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked for that."""
        return str(BatchStatus.CANCELLING) in self.times

    @property
    def status(self) -> BatchStatus:
        """As clients see it."""
        return batch_status(self.end, self.is_cancelled, self.job)


class FileStore(Protocol):
    """The files of a fleet; any thread may call it. An owner of None is everybody.

    Raises TryLater where the database does not answer, and Elsewhere, instead of a change, where another server has it.
    """

    def add_file(self, file: FileRecord) -> None:
        """Remember it."""
        ...

    def processed(self, file: FileRecord) -> None:
        """Its bytes are there."""
        ...

    def file(self, file_id: str, owner: str | None = None) -> FileRecord:
        """Raises NotFound."""
        ...

    def list_files(
        self,
        owner: str | None,
        limit: int,
        after: str | None = None,
        ascending: bool = False,
        purpose: str | None = None,
    ) -> list[FileRecord]:
        """Those that are processed; `after` is the id of the last one that was seen. Raises NotFound."""
        ...

    def remove_file(self, file_id: str, owner: str | None = None) -> None:
        """Nobody sees it any more; raises NotFound, and InvalidInput where a batch that is not over reads it."""
        ...

    def forget_file(self, file_id: str) -> None:
        """Its bytes are gone, too."""
        ...

    def unwanted_files(self, begun_before_unix_s: float, now_unix_s: float) -> list[str]:
        """Files whose bytes should go: deleted, expired and not needed, or begun so long ago and never finished."""
        ...

    def stored_bytes(self, owner: str | None) -> int:
        """Of all files of an owner."""
        ...


class BatchStore(Protocol):
    """The batches of a fleet; as FileStore."""

    def add_batch(self, batch: BatchRecord, since_unix_s: float) -> BatchRecord:
        """Remember it, or the same one of somebody who asks again; raises NotFound where its file is not there."""
        ...

    def batch(self, batch_id: str, owner: str | None = None) -> BatchRecord:
        """Raises NotFound."""
        ...

    def same_batch(self, fingerprint: str, since_unix_s: float) -> BatchRecord | None:
        """One of that content, made since then."""
        ...

    def list_batches(
        self,
        owner: str | None,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        endpoint: str | None = None,
    ) -> list[BatchRecord]:
        """The newest first; `after` is the id of the last one that was seen, `before` of the first. Raises NotFound."""
        ...

    def remove_batch(self, batch_id: str) -> None:
        """Nobody sees it any more."""
        ...

    def open_batches(self, owner: str) -> int:
        """How many of an owner's are not over."""
        ...

    def counted_batches(self) -> dict[str, tuple[int, float]]:
        """How many of each status there are, and when the oldest of them was made."""
        ...

    def stirring_batches(self) -> list[str]:
        """Those with something to be done: not over, and not waiting for a job that is not over. Oldest first."""
        ...

    def due_batches(self, now_unix_s: float) -> list[str]:
        """Those whose window has passed and whose jobs are not over."""
        ...

    def checked_batch(self, batch_id: str, model: str, total: int) -> None:
        """Its file has been looked through, and can be run."""
        ...

    def cancel_batch(self, batch_id: str) -> BatchRecord | None:
        """Somebody wants it to end; None where it was over."""
        ...

    def end_batch(self, batch_id: str, files: Sequence[FileRecord], **values: Any) -> BatchRecord | None:
        """It is over, as `batch_end` says how, and its files are there; None where it was over."""
        ...

    def unswept_batches(self) -> list[str]:
        """Those that are over and whose folders are there."""
        ...

    def swept_batch(self, batch_id: str) -> None:
        """Its folder is gone."""
        ...
