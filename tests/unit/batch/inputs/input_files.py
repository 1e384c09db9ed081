"""Files in every format, and what is read from them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from twoshift.batch.inputs import InputFile, Piece, ShardTarget, cut, read, resolve
from twoshift.blobs.local import LocalBlobs

BLOBS = LocalBlobs()
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def blobs_for(location: str) -> LocalBlobs:
    return BLOBS


def put(path: Path, data: bytes) -> InputFile:
    """The file, with its content compressed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    return found(path)


def found(path: Path) -> InputFile:
    (file,) = resolve([str(path)], blobs_for, None)
    return file


def jsonl(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow(batches: Sequence[pa.RecordBatch], stream: bool = False) -> bytes:
    sink = io.BytesIO()
    make = ipc.new_stream if stream else ipc.new_file
    with make(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def rows_of(
    file: InputFile,
    pieces: Iterable[Piece] | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    batch_rows: int = 1000,
    batch_bytes: int = 1 << 20,
) -> list[dict[str, Any]]:
    """All rows of the pieces (None: of the whole file), as dicts."""
    chosen = [file.whole()] if pieces is None else pieces
    batches = (read(piece, file, BLOBS, columns, batch_rows, batch_bytes, schema) for piece in chosen)
    return [row for some in batches for batch in some for row in batch.to_pylist()]


def cut_in(file: InputFile, rows: int) -> list[Piece]:
    return [piece for shard in cut([file], blobs_for, ShardTarget(rows)) for piece in shard]
