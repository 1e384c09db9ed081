"""How large the shards of a job are."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from twoshift.batch.inputs import InputFile, Shard, ShardTarget, conform, cut, read
from twoshift.batch.result_columns import ERROR, is_vector
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.parquet import parquet_writer
from twoshift.batch.windows import WINDOW_ROWS
from twoshift.ports import Blobs

__all__ = ["RowWork", "cut_shards", "part_row_bytes"]

_MOST_SHARD_ROWS = 1_000_000  # redoing one must stay cheap
_TURNS = 4  # shards, at least, for each that is read at the same time
_FEW_ROWS = 2 * WINDOW_ROWS  # of a shard: fewer would be mostly opening and committing
_MOST_FILE_ROWS = 10_000_000  # where a size of files is asked for
_SAMPLE_ROWS, _SAMPLE_BYTES = 8192, 4 << 20  # that kept columns are measured on
_TEXT_BYTES = 64.0  # of a result that is a text, about
_MOST_SHARDS = 10_000  # a part file each; more only where `shard_rows` asks for them


@dataclass(frozen=True, slots=True)
class RowWork:
    """What a row is, as far as the first rows tell."""

    row_s: float  # for the model
    row_bytes: float  # in the input
    part_row_bytes: Callable[[], float]  # in a part; asked only where it matters


def part_row_bytes(
    files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], settings: JobSettings, schema: pa.Schema
) -> float:
    """Of a row in a Parquet part, about: the first rows' kept columns as they are written, and the results."""
    kept = pa.schema([schema.field(name) for name in settings.keep])
    results = sum(_bytes(field.type) for field in schema if field.name not in (*settings.keep, ERROR))
    file = next((each for each in files if each.size_bytes), None)
    if not settings.keep or file is None:
        return max(1.0, results)
    buffer, rows = io.BytesIO(), 0
    with parquet_writer(buffer, kept, settings.compression) as writer:
        for batch in read(
            file.head(), file, blobs_for(file.location), settings.keep, _SAMPLE_ROWS, _SAMPLE_BYTES, kept
        ):
            writer.write_batch(conform(batch, kept)[0])
            rows += batch.num_rows
            if rows >= _SAMPLE_ROWS:
                break
    return max(1.0, results + buffer.tell() / max(1, rows))


def _bytes(kind: pa.DataType) -> float:
    if is_vector(kind):
        return kind.list_size * kind.value_type.bit_width / 8
    return _TEXT_BYTES if pa.types.is_nested(kind) or not hasattr(kind, "bit_width") else kind.bit_width / 8


def cut_shards(
    files: tuple[InputFile, ...], blobs_for: Callable[[str], Blobs], settings: JobSettings, at_once: int,
    work: RowWork,
) -> tuple[Shard, ...]:  # fmt: skip
    """Shards for workers that read so many at once: longer where there would be too many, shorter where too few."""
    row_bytes = work.row_bytes
    if settings.file_size is not None:
        rows = max(1, min(_MOST_FILE_ROWS, int(settings.file_size / work.part_row_bytes())))
        return cut(files, blobs_for, ShardTarget(min(rows, settings.shard_rows or rows), row_bytes))
    target = _target_rows(settings, at_once, work.row_s)
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
