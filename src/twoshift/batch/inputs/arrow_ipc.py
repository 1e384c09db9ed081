"""Arrow IPC files and streams: cut between record batches, and inside those that are too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from twoshift.batch.inputs.arrow_messages import MAGIC, is_feather_v1, record_batches
from twoshift.batch.inputs.columns import WantedColumns, assembled, bounded_batches
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.parquet import group_pieces
from twoshift.batch.inputs.piece import Piece, ShardTarget
from twoshift.batch.inputs.source import Source, decompressed, opened
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["arrow_batches", "arrow_pieces", "arrow_schema"]


def arrow_pieces(index: int, file: InputFile, blobs: Blobs, target: ShardTarget) -> list[Piece]:
    """Pieces of about the target."""
    with opened(file, blobs) as source:
        if file.compression is None:
            _is_file(source, file)
            sizes = list(record_batches(source, file.size_bytes))
        else:
            sizes = [(batch.num_rows, batch.nbytes) for batch in _stream(source, file)]
        return group_pieces(index, sizes, target)


def arrow_schema(file: InputFile, blobs: Blobs) -> pa.Schema:
    """The file's columns."""
    with opened(file, blobs) as source:
        if file.compression is None and _is_file(source, file):
            return ipc.open_file(source.arrow()).schema
        return _stream(source, file).schema


def arrow_batches(
    piece: Piece, file: InputFile, blobs: Blobs, wanted: WantedColumns, batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The piece's rows; of a file only the record batches and columns that it needs are read."""
    with opened(file, blobs) as source:
        if file.compression is None and _is_file(source, file):
            names, decoded = _of_file(source, file, piece, wanted)
        else:
            stream = _stream(source, file)
            names = wanted.among(stream.schema.names, file.location)
            decoded = _sliced(((batch.num_rows, batch) for batch in stream), piece)
        seen = 0
        for batch in bounded_batches((batch.select(names) for batch in decoded), batch_rows, batch_bytes):
            seen += batch.num_rows
            yield assembled({name: batch.column(name) for name in names}, batch.num_rows, wanted, {})
        if piece.rows is not None and seen != piece.rows:
            raise EOFError(f"the file has {seen} rows, but had {piece.rows} when the job listed it")


def _of_file(
    source: Source, file: InputFile, piece: Piece, wanted: WantedColumns
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    rows = [count for count, _ in record_batches(source, file.size_bytes)]
    every = ipc.open_file(source.arrow()).schema.names
    names = wanted.among(every, file.location)
    fields = [every.index(name) for name in names] or [0]  # none would mean all
    options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    reader = ipc.open_file(source.arrow(), options=options)
    if reader.num_record_batches != len(rows):
        raise EOFError(f"{len(rows)} of {reader.num_record_batches} record batches were found")
    return names, _sliced(((count, _Later(reader, k)) for k, count in enumerate(rows)), piece)


class _Later:
    """A record batch that is read when it is needed."""

    def __init__(self, reader: Any, place: int) -> None:
        self._reader, self._place = reader, place

    def slice(self, start: int, rows: int) -> pa.RecordBatch:
        return self._reader.get_batch(self._place).slice(start, rows)


def _sliced(batches: Iterator[tuple[int, Any]], piece: Piece) -> Iterator[pa.RecordBatch]:
    at = 0
    for rows, batch in batches:
        begin, at = at, at + rows
        if at > piece.start and rows:
            skipped = max(0, piece.start - begin)
            yield batch.slice(skipped, min(at, piece.stop) - begin - skipped)
        if at >= piece.stop:
            return


def _is_file(source: Source, file: InputFile) -> bool:
    """Whether it can be read at any place; a stream only from its beginning. Raises InvalidInput for Feather 1."""
    source.seek(0)
    head = source.read(len(MAGIC))
    if is_feather_v1(head):
        raise InvalidInput(
            "inputs", file.location, "Arrow IPC (Feather 2); this file is Feather 1: write it again as Feather 2"
        )
    return head == MAGIC


def _stream(source: Source, file: InputFile) -> Any:
    """A reader from the first record batch on; what is inside a compressed file may be of either kind."""
    stream: Any = decompressed(source, file.compression)
    is_file = stream.read(len(MAGIC)) == MAGIC  # a file is a stream with something before and after it
    if not is_file:
        stream = decompressed(source, file.compression)
    options = ipc.IpcReadOptions(use_threads=False)
    return ipc.open_stream(stream.arrow() if isinstance(stream, Source) else stream, options=options)
