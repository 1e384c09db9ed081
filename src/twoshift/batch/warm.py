"""What the first job of a process does for the first time, done before anybody waits for an answer."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from twoshift.batch.inputs import conform

__all__ = ["warm"]


def warm() -> None:
    """Arrow imports pandas, where there is one, at its first list: a third of a second in which nothing else runs."""
    kept = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"id": "1", "text": "a"}, {"id": "b", "text": None}])
    fitted, _ = conform(batch, kept)
    written = pa.BufferOutputStream()
    with pq.ParquetWriter(written, kept, compression="zstd") as writer:
        writer.write_batch(fitted)
    file = pq.ParquetFile(pa.BufferReader(written.getvalue()))
    for read in file.iter_batches(1):
        read.to_pylist()
