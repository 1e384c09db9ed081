"""Files and batches as OpenAI's clients read and write them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from twoshift.batch_ports import BatchRecord, FileRecord
from twoshift.types import BatchStatus

__all__ = ["BatchList", "BatchView", "CreateBatch", "Deleted", "FileList", "FileView", "batch_view", "file_view"]

LEAST_EXPIRY_S, MOST_EXPIRY_S = 3600, 2_592_000


class FileView(Struct, kw_only=True):
    """A stored file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    expires_at: int | None


class FileList(Struct, kw_only=True):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[FileView]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(Struct, kw_only=True):
    """Reply after a file was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class ExpiresAfter(Struct):
    """When the files of a batch expire."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=LEAST_EXPIRY_S, le=MOST_EXPIRY_S)]


class CreateBatch(Struct):
    """Body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: (
        Annotated[dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)]
        | None
    ) = None
    output_expires_after: ExpiresAfter | None = None


class RetryBatch(Struct):
    """Body of POST /v1/batches/{batch}/retry."""

    completion_window: str | None = None  # as the batch had it


class BatchError(Struct):
    """An error in the input of a batch."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(Struct, kw_only=True):
    """The errors in the input of a batch."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class RequestCounts(Struct):
    """Number of requests of a batch: all, completed and failed."""

    total: int
    completed: int
    failed: int


class CachedTokens(Struct, frozen=True):
    """Input tokens that were read from the prefix cache."""

    cached_tokens: int = 0


class ReasoningTokens(Struct, frozen=True):
    """Output tokens that were used for reasoning."""

    reasoning_tokens: int = 0


class BatchUsage(Struct):
    """Token counts of a batch."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: CachedTokens = CachedTokens()
    output_tokens_details: ReasoningTokens = ReasoningTokens()


class BatchView(Struct, kw_only=True):
    """A batch and its status."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    left_s: float | None  # estimated; None where nothing is known, or nothing runs
    usage: BatchUsage
    metadata: dict[str, str] | None


class BatchList(Struct, kw_only=True):
    """A page of batches, newest first."""

    object: Literal["list"] = "list"
    data: list[BatchView]
    first_id: str | None
    last_id: str | None
    has_more: bool


def file_view(file: FileRecord) -> FileView:
    """As clients see it."""
    return FileView(
        id=file.id,
        bytes=file.size_bytes,
        created_at=int(file.created_unix_s),
        filename=file.filename,
        purpose=file.purpose,
        expires_at=None if file.expires_unix_s is None else int(file.expires_unix_s),
    )


def batch_view(batch: BatchRecord) -> BatchView:
    """As clients see it."""

    def at(name: str) -> int | None:
        return None if name not in batch.times else int(batch.times[name])

    return BatchView(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.model,
        errors=None if batch.errors is None else BatchErrors(data=[BatchError(**each) for each in batch.errors]),
        input_file_id=batch.input_file_id,
        completion_window=batch.window,
        status=batch.status,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=int(batch.created_unix_s),
        expires_at=int(batch.expires_unix_s),
        request_counts=_counts(batch),
        left_s=_left_s(batch),
        usage=_usage(batch),
        metadata=batch.metadata,
        in_progress_at=at("in_progress"),
        finalizing_at=at("finalizing"),
        completed_at=at("completed"),
        failed_at=at("failed"),
        expired_at=at("expired"),
        cancelling_at=at("cancelling"),
        cancelled_at=at("cancelled"),
    )


def _left_s(batch: BatchRecord) -> float | None:
    return (batch.progress or {}).get("left_s") if batch.status is BatchStatus.IN_PROGRESS else None


def _usage(batch: BatchRecord) -> BatchUsage:
    total = batch.tokens + batch.output_tokens
    return BatchUsage(batch.tokens, batch.output_tokens, total, CachedTokens(batch.cached_tokens))


def _counts(batch: BatchRecord) -> RequestCounts:
    """Its own once it is over; before that, what its job has committed."""
    if batch.status.is_over or batch.progress is None:
        return RequestCounts(batch.total, batch.completed, batch.failed)
    failed = min(batch.total, int(batch.progress.get("errors", 0)))
    done = min(batch.total, int(batch.progress.get("rows_committed", 0)))
    return RequestCounts(batch.total, max(0, done - failed), failed)
