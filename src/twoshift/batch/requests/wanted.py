"""A batch as it is asked for."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import msgspec

from twoshift.batch.requests.files import StoredFiles, new_id
from twoshift.batch_ports import BatchRecord
from twoshift.endpoints.known import ENDPOINTS
from twoshift.errors import InvalidInput

__all__ = ["BatchWanted"]

_WINDOW = re.compile(r"([1-9]\d{0,5})([hms])")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST_S = 366 * 86_400.0


@dataclass(slots=True)
class BatchWanted:
    """What decides a batch; raises InvalidInput."""

    input_file_id: str
    endpoint: str
    window: str
    metadata: dict[str, str] | None = None
    output_expires_s: float | None = None  # after which its files go
    retry_of: str = ""
    content: str = ""  # a digest of its file, where that decides whether it is the same
    total: int = 0  # requests, as far as that is known

    def __post_init__(self) -> None:
        if self.endpoint not in ENDPOINTS:
            raise InvalidInput("endpoint", self.endpoint, f"one of {', '.join(ENDPOINTS)}")
        _ = self.window_s

    @classmethod
    def again(cls, batch: BatchRecord, window: str | None) -> BatchWanted:
        """The same for what has failed of it, in the same window where none is given; its file is yet to be made."""
        return cls("", batch.endpoint, window or batch.window, batch.metadata, batch.output_expires_s, batch.id)

    @property
    def window_s(self) -> float:
        """The time it has."""
        found = _WINDOW.fullmatch(self.window)
        seconds = int(found[1]) * _UNIT_S[found[2]] if found else 0.0
        if not 0 < seconds <= _LONGEST_S:
            raise InvalidInput(
                "completion_window", self.window, "hours, minutes or seconds up to a year, such as 24h, 90m or 45s"
            )
        return seconds

    def fingerprint(self, owner: str, models: tuple[str, ...] = ()) -> str:
        """The same for the same request of the same owner; a retry's is that of what it retries.

        `models` are those that the key may use; none: all. Another key's batch may fail where this one's would not.
        """
        source = self.retry_of or self.content or self.input_file_id
        parts = [owner, source, self.endpoint, self.window, self.metadata, self.output_expires_s, bool(self.retry_of)]
        parts.append(sorted(models))
        return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()

    def record(self, batch_id: str, owner: str, models: tuple[str, ...], files: StoredFiles) -> BatchRecord:
        """As it begins."""
        now_s = files.clock()
        return BatchRecord(
            id=batch_id,
            owner=owner,
            endpoint=self.endpoint,
            input_file_id=self.input_file_id,
            window=self.window,
            created_unix_s=now_s,
            expires_unix_s=now_s + self.window_s,
            fingerprint=self.fingerprint(owner, models),
            output_id=new_id("file-"),
            error_id=new_id("file-"),
            output_expires_s=self.output_expires_s or files.limits.retention_s,
            metadata=self.metadata,
            models=models,
            total=self.total,
        )
