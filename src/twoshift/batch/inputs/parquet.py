"""Parquet files: cut between row groups, and inside those that are too large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from twoshift.batch.inputs.columns import WantedColumns, assembled, bounded_batches
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.piece import Piece, ShardTarget
from twoshift.batch.inputs.source import Source, opened
from twoshift.batch.inputs.tables import constant_array, constant_fields
from twoshift.ports import Blobs

__all__ = ["group_pieces", "parquet_batches", "parquet_pieces", "parquet_schema"]

_BUFFER_BYTES = 1 << 20  # a column is read in pages, not as a whole
_DECODED_ROWS = 256  # at a time: a run of rows of megabytes among small ones is not foreseen by any mean


def parquet_pieces(index: int, file: InputFile, blobs: Blobs, target: ShardTarget) -> list[Piece]:
    """Pieces of about the target."""
    with opened(file, blobs) as source:
        metadata = _reader(source).metadata
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        return group_pieces(index, [(group.num_rows, group.total_byte_size) for group in groups], target)


def group_pieces(index: int, groups: Sequence[tuple[int, int]], target: ShardTarget) -> list[Piece]:
    """Groups of rows and bytes as pieces: small ones together, large ones cut evenly."""
    pieces: list[Piece] = []
    start = stop = size = 0
    for rows, group_bytes in groups:
        share = target.share(rows, group_bytes)
        if stop > start and target.share(stop - start + rows, size + group_bytes) > 1:
            pieces.append(Piece(index, start, stop, stop - start, size))
            start, size = stop, 0
        if share <= 1:
            stop, size = stop + rows, size + group_bytes
            continue
        pieces += _inside(index, start, (rows, group_bytes), share)
        start = stop = start + rows
    if stop > start:
        pieces.append(Piece(index, start, stop, stop - start, size))
    return pieces


def _inside(index: int, start: int, group: tuple[int, int], share: float) -> Iterator[Piece]:
    rows, size = group
    count = min(rows, -int(-share // 1), max(1, size))  # a damaged header may speak of 2**60 rows in nothing
    cuts = [rows * k // count for k in range(count + 1)]
    for a, b in pairwise(cuts):
        yield Piece(index, start + a, start + b, b - a, size * (b - a) // rows)


def parquet_schema(file: InputFile, blobs: Blobs) -> pa.Schema:
    """The file's columns."""
    with opened(file, blobs) as source:
        own = _reader(source).schema_arrow
    constants = constant_fields(file)
    names = {field.name for field in constants}
    return pa.schema([*(field for field in own if field.name not in names), *constants])


def parquet_batches(
    piece: Piece, file: InputFile, blobs: Blobs, wanted: WantedColumns, batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The piece's rows; only the row groups and columns that it needs are read."""
    with opened(file, blobs) as source:
        reader = _reader(source)
        constants = {each.name: each for each in file.constants}
        own = [name for name in reader.schema_arrow.names if name not in constants]
        among = wanted.among([*own, *constants], file.location)
        names = [name for name in among if name not in constants]
        seen = 0
        for batch in bounded_batches(_decoded(reader, piece, names, batch_rows, batch_bytes), batch_rows, batch_bytes):
            seen += batch.num_rows
            arrays = {
                name: constant_array(constants[name], batch.num_rows) if name in constants else batch.column(name)
                for name in among
            }
            yield assembled(arrays, batch.num_rows, wanted, {})
        if piece.rows is not None and seen != piece.rows:
            raise EOFError(f"the file has {seen} rows, but had {piece.rows} when the job listed it")


def _reader(source: Source) -> pq.ParquetFile:
    return pq.ParquetFile(source.arrow(), buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)


def _decoded(
    reader: pq.ParquetFile, piece: Piece, names: list[str], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    groups = [reader.metadata.row_group(k) for k in range(reader.metadata.num_row_groups)]
    ends = list(accumulate(group.num_rows for group in groups))
    chosen = [k for k, end in enumerate(ends) if end > piece.start and end - groups[k].num_rows < piece.stop]
    if not chosen:
        return
    size = sum(groups[k].total_byte_size for k in chosen)
    rows = sum(groups[k].num_rows for k in chosen)
    decoded_rows = max(1, min(_DECODED_ROWS, batch_rows, batch_bytes * rows // max(1, size)))
    at = ends[chosen[0]] - groups[chosen[0]].num_rows
    for batch in reader.iter_batches(decoded_rows, chosen, names, use_threads=False):
        begin, at = at, at + batch.num_rows
        if at > piece.start:
            skipped = max(0, piece.start - begin)
            yield batch.slice(skipped, min(at, piece.stop) - begin - skipped)
        if at >= piece.stop:
            return
