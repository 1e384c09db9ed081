"""What a part tells about itself."""

from __future__ import annotations

from typing import Any

import msgspec

from twoshift.decodable import decodable

__all__ = ["MOST_FAILED", "FailedRow", "PartStats", "StreamMark"]

MOST_FAILED = 5  # rows that a part names


class FailedRow(msgspec.Struct, frozen=True):
    """A row without a result."""

    row: str  # its kept values; empty where none is kept
    error: str


class StreamMark(msgspec.Struct, frozen=True):
    """How far a stream is with this part: what it has read, and which of its windows the part holds."""

    first: int
    last: int
    position: dict[str, Any]  # of the source, which alone knows what it means


@decodable
class PartStats(msgspec.Struct, frozen=True):
    """What became of a shard; kept in its part."""

    shard: int
    rows: int
    errors: int
    tokens: int
    truncated: int
    seconds: float  # from lease to publish
    device_s: float
    worker: str
    kinds: dict[str, int]  # of errors
    output_tokens: int = 0  # that were generated
    cached_tokens: int = 0  # of `tokens`: read before, for another row
    split: int = 0  # texts that were divided because they are longer than the model takes
    skipped: int = 0  # rows with neither a result nor an error: their texts are empty
    failed: tuple[FailedRow, ...] = ()  # the first of the errors
    stream: StreamMark | None = None  # of a stream's window: the part and its offset are one commit
    began_unix_s: float = 0.0  # its answers are as old as that; 0: an earlier release wrote it
