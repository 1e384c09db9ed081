"""Parts as JSON lines; a part's stats are in its record alone."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from twoshift.batch.part_file import PartFile, Seal
from twoshift.batch.part_stats import PartStats
from twoshift.batch.result_columns import ERROR, is_vector

__all__ = ["JsonLinesSink"]

_READ_ROWS = 4096
_NOT_FINITE = "is NaN or infinite, which JSON cannot represent: use --output-format parquet"


class JsonLinesSink:
    """A Sink."""

    def check_kept(self, kept: pa.Schema) -> None:
        """Every column has a place in it."""

    def unwritable(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Rows with a NaN or an infinity: they would become null, which must not pass for an answer."""
        return {row: f"{name} {_NOT_FINITE}" for row, name in _not_finite(batch).items()}

    def open(self, path: Path, schema: pa.Schema, compression: str = "zstd") -> _JsonPart:
        """A writer for a new part."""
        return _JsonPart(path)

    def stats(self, file: Any, location: str) -> PartStats:
        """What can be counted: JSON lines have no place for stats."""
        rows = errors = 0
        for line in file:
            rows += 1
            errors += msgspec.json.decode(line).get(ERROR) is not None
        shard = int(re.findall(r"\d+", Path(location).name)[0])
        return PartStats(shard, rows, errors, 0, 0, 0.0, 0.0, "", {"unknown": errors} if errors else {})

    def first_rows(self, file: BinaryIO, schema: pa.Schema, rows: int) -> dict[str, list[Any]]:
        """By column."""
        lines = [msgspec.json.decode(line) for line, _ in zip(file, range(rows), strict=False)]
        return {name: [line.get(name) for line in lines] for name in schema.names}

    def batches(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """In order."""
        while lines := [msgspec.json.decode(line) for line in itertools.islice(file, _READ_ROWS)]:
            yield pa.RecordBatch.from_pylist(lines, schema)


class _JsonPart:
    def __init__(self, path: Path) -> None:
        self._file = PartFile(path)

    def write(self, batch: pa.RecordBatch) -> None:
        encode = msgspec.json.Encoder(enc_hook=str).encode
        for row in batch.to_pylist():
            self._file.write(encode(row) + b"\n")

    def finish(self, stats: PartStats) -> Seal:
        self._file.close()
        return self._file.seal()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def _not_finite(batch: pa.RecordBatch) -> dict[int, str]:
    """Rows with a NaN or an infinity, and the column that has it."""
    found: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_nested(column.type) and not is_vector(column.type):
            found.update((row, str(name)) for row, value in enumerate(column.to_pylist()) if _has_odd(value))
            continue
        width = column.type.list_size if is_vector(column.type) else 1
        if not (pa.types.is_floating(column.type) or is_vector(column.type)):
            continue
        flat = column.fill_null(0.0) if width == 1 else column.values.fill_null(0.0)
        bad = ~np.isfinite(flat.to_numpy(zero_copy_only=False).astype(np.float64)).reshape(-1, width).all(axis=1)
        found.update((int(row), str(name)) for row in np.flatnonzero(bad))
    return found


def _has_odd(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(_has_odd, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)
