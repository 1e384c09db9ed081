"""The rows of a committed part, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from twoshift.batch.plan import Plan, part_location
from twoshift.ports import Blobs

__all__ = ["part_batches"]


def part_batches(output: Blobs, plan: Plan, shard: int, rows: int) -> Iterator[pa.RecordBatch]:
    """In the order of the input, at most so many at once."""
    with output.open(part_location(plan, shard)) as file:
        if plan.settings.output_format == "parquet":
            yield from pq.ParquetFile(file).iter_batches(rows)
        else:
            yield from _json_batches(file, plan.schema, rows)


def _json_batches(lines: Any, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    held = list[dict[str, Any]]()
    for line in lines:
        held.append(msgspec.json.decode(line))
        if len(held) == rows:
            yield pa.RecordBatch.from_pylist(held, schema)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema)
