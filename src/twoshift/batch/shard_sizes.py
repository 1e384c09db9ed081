"""How large the shards of a job are."""

from __future__ import annotations

import math
from collections.abc import Callable

from twoshift.batch.inputs import InputFile, Shard, ShardTarget, cut
from twoshift.batch.settings import JobSettings
from twoshift.batch.windows import WINDOW_ROWS
from twoshift.ports import Blobs

__all__ = ["cut_shards"]

_MOST_SHARD_ROWS = 1_000_000  # redoing one must stay cheap
_TURNS = 4  # shards, at least, for each that is read at the same time
_FEW_ROWS = 2 * WINDOW_ROWS  # of a shard: fewer would be mostly opening and committing
_MOST_SHARDS = 10_000  # a part file each; more only where `shard_rows` asks for them


def cut_shards(
    files: tuple[InputFile, ...], blobs_for: Callable[[str], Blobs], settings: JobSettings, at_once: int,
    row_s: float, row_bytes: float,
) -> tuple[Shard, ...]:  # fmt: skip
    """Shards for workers that read so many at once: longer where there would be too many, shorter where too few."""
    target = _target_rows(settings, at_once, row_s)
    rows = min(target, settings.shard_rows or target)
    shards = cut(files, blobs_for, ShardTarget(rows, row_bytes))
    if at_once > 1 and len(shards) < _TURNS * at_once:  # or the last of them are read alone
        rows = min(rows, max(_FEW_ROWS, rows * len(shards) // (_TURNS * at_once)))
        return cut(files, blobs_for, ShardTarget(rows, row_bytes))
    if len(shards) <= _MOST_SHARDS or settings.shard_rows is not None:
        return shards
    larger = min(_MOST_SHARD_ROWS, math.ceil(rows * len(shards) / _MOST_SHARDS))
    return cut(files, blobs_for, ShardTarget(max(rows, larger), row_bytes))


def _target_rows(settings: JobSettings, at_once: int, row_s: float) -> int:
    """Rows of a shard; fewer where a worker reads several at the same time, and each takes longer for it."""
    rows = max(1, min(_MOST_SHARD_ROWS, int(settings.shard_seconds / row_s)))
    return min(rows, max(_FEW_ROWS, rows // at_once))
