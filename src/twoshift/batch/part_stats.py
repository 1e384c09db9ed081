"""What a part tells about itself."""

from __future__ import annotations

import msgspec

from twoshift.decodable import decodable

__all__ = ["PartStats"]


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
    skipped: int = 0  # rows with neither a result nor an error: their texts are empty
