"""What a batch that is asked for becomes: checked, known again, remembered."""

from __future__ import annotations

import hashlib
import re

import msgspec

from twoshift.batch.requests.files import StoredFiles, new_id
from twoshift.batch_ports import BatchRecord, BatchWanted
from twoshift.endpoints.known import ENDPOINTS
from twoshift.errors import InvalidInput

__all__ = ["check_wanted", "fingerprint", "new_record", "retried", "window_s"]

_WINDOW = re.compile(r"([1-9]\d{0,5})([hms])")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST_S = 366 * 86_400.0


def check_wanted(wanted: BatchWanted) -> None:
    """Raises InvalidInput."""
    if wanted.endpoint not in ENDPOINTS:
        raise InvalidInput("endpoint", wanted.endpoint, f"one of {', '.join(ENDPOINTS)}")
    window_s(wanted.window)


def window_s(window: str) -> float:
    """The time that a batch has; raises InvalidInput."""
    found = _WINDOW.fullmatch(window)
    seconds = int(found[1]) * _UNIT_S[found[2]] if found else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise InvalidInput(
            "completion_window",
            window,
            "a whole number of hours, minutes or seconds, such as 24h, 90m or 45s; the maximum is one year",
        )
    return seconds


def retried(batch: BatchRecord, window: str | None, models: tuple[str, ...]) -> BatchWanted:
    """The same for what has failed of it, in the same window where none is given; its file is yet to be made."""
    return BatchWanted(
        "", batch.endpoint, window or batch.window, batch.metadata, batch.output_expires_s,
        models=models or batch.models, retry_of=batch.id,
    )  # fmt: skip


def fingerprint(wanted: BatchWanted, owner: str) -> str:
    """The same for the same request of the same owner; a retry's is that of what it retries.

    Another key's batch may fail where this one's would not: the models that it may use count.
    """
    source = wanted.retry_of or wanted.content or wanted.input_file_id
    given = [wanted.endpoint, wanted.window, wanted.metadata, wanted.output_expires_s]
    parts = [owner, source, *given, bool(wanted.retry_of), sorted(wanted.models)]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def new_record(wanted: BatchWanted, batch_id: str, owner: str, files: StoredFiles) -> BatchRecord:
    """As it begins."""
    now_s = files.clock()
    return BatchRecord(
        id=batch_id,
        owner=owner,
        endpoint=wanted.endpoint,
        input_file_id=wanted.input_file_id,
        window=wanted.window,
        created_unix_s=now_s,
        expires_unix_s=now_s + window_s(wanted.window),
        fingerprint=fingerprint(wanted, owner),
        output_id=new_id("file-"),
        error_id=new_id("file-"),
        output_expires_s=wanted.output_expires_s or files.limits.retention_s,
        metadata=wanted.metadata,
        models=wanted.models,
        total=wanted.total,
    )
