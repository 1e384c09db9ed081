"""Anthropic's message batches as their clients read and write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from twoshift.batch_ports import BatchRecord
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.messages import told_anthropic
from twoshift.types import BatchStatus

__all__ = [
    "CreateMessageBatch",
    "DeletedMessageBatch",
    "MessageBatch",
    "MessageBatchList",
    "message_batch",
    "result_line",
]

MOST_REQUESTS = 100_000


class MessageBatchRequest(Struct, forbid_unknown_fields=True):
    """A request of a message batch."""

    custom_id: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    # Read when it is run: what is wrong with it is this request's own error.
    params: Annotated[Raw, Meta(extra_json_schema={"type": "object", "required": ["model"]})]


class CreateMessageBatch(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/messages/batches."""

    requests: Annotated[list[MessageBatchRequest], Meta(min_length=1, max_length=MOST_REQUESTS)]


class MessageCounts(Struct):
    """Number of requests by outcome; until the batch ends, all requests count as `processing`."""

    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class MessageBatch(Struct, kw_only=True):
    """A message batch and its status."""

    id: str
    type: Literal["message_batch"] = "message_batch"
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageCounts
    created_at: str
    expires_at: str
    ended_at: str | None
    cancel_initiated_at: str | None
    archived_at: None = None
    results_url: str | None


class MessageBatchList(Struct):
    """A page of message batches, newest first."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(Struct, kw_only=True):
    """Reply after a message batch was deleted."""

    id: str
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


class _Response(Struct):
    status_code: int
    body: Raw


class _NotRun(Struct):
    code: str


class _Line(Struct):
    """Of an output or error file."""

    custom_id: str
    response: _Response | None
    error: _NotRun | None


class _Told(Struct):
    message: str


class _Error(Struct):
    error: _Told


class _ResultLine(Struct):
    custom_id: str
    result: dict[str, Any]


_lines, _errors, _encoder = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_Error), msgspec.json.Encoder()


def message_batch(batch: BatchRecord, address: str) -> MessageBatch:
    """As clients see it, who reached the server at that address."""
    over, cancelling = batch.status.is_over, batch.status is BatchStatus.CANCELLING
    ended = [batch.times[name] for name in ("completed", "failed", "expired", "cancelled") if name in batch.times]
    return MessageBatch(
        id=batch.id,
        processing_status="ended" if over else "canceling" if cancelling else "in_progress",
        request_counts=_counts(batch),
        created_at=_time(batch.created_unix_s),
        expires_at=_time(batch.expires_unix_s),
        ended_at=_time(ended[0]) if over and ended else None,
        cancel_initiated_at=_time(batch.times["cancelling"]) if "cancelling" in batch.times else None,
        results_url=f"{address}/v1/messages/batches/{batch.id}/results" if over else None,
    )


def _counts(batch: BatchRecord) -> MessageCounts:
    if not batch.status.is_over:
        return MessageCounts(processing=batch.total)
    if batch.status is BatchStatus.FAILED:
        return MessageCounts(errored=batch.total)
    found = MessageCounts(succeeded=batch.completed, errored=batch.failed - batch.not_run)
    if batch.status is BatchStatus.EXPIRED:
        found.expired = batch.not_run
    else:
        found.canceled = batch.not_run
    return found


def result_line(line: bytes) -> bytes:
    """A line of an output or error file, as a line of the results."""
    read = _lines.decode(line)
    return _encoder.encode(_ResultLine(read.custom_id, _result(read))) + b"\n"


def _result(line: _Line) -> dict[str, Any]:
    if line.response is None:
        code = "" if line.error is None else line.error.code
        return {"type": "expired" if code == "batch_expired" else "canceled"}
    if line.response.status_code == 200:
        return {"type": "succeeded", "message": line.response.body}
    told = _errors.decode(bytes(line.response.body)).error.message
    fault = Fault(line.response.status_code, "", told)
    return {"type": "errored", "error": Raw(told_anthropic(fault))}


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
