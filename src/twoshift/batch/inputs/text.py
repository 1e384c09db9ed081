"""Files of text: counted, cut and read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from twoshift.batch.inputs.columns import WantedColumns
from twoshift.batch.inputs.csv_rows import CsvRows, delimiter_of, header_names
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.jsonl import JsonRows, too_long
from twoshift.batch.inputs.piece import END, Piece, ShardTarget
from twoshift.batch.inputs.quotes import QuotedEnds, UnclosedQuote
from twoshift.batch.inputs.records import LineEnds, RecordBlock, RecordEnds, bounded, records, window
from twoshift.batch.inputs.source import (
    Source,
    decompressed,
    line_chunks,
    opened,
    range_chunks,
    text_start,
    whole_chunks,
)
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["csv_header", "piece_lines", "text_batches", "text_pieces"]

# Of a compressed text. Each is decompressed from the beginning up to its own end, which k pieces do (k + 1) / 2 times
# over, so there are few of them however small a shard should be: at most 8.5 times.
_MOST_PACKED_PIECES = 16
_HEADER_BYTES = 1 << 16
_HEAD_BYTES, _HEAD_ROWS = 4 << 20, 64  # what is looked at to guess how long a line is


def text_pieces(index: int, file: InputFile, blobs: Blobs, target: ShardTarget, counted: bool) -> list[Piece]:
    """Pieces of about the target; every row is counted on the way, but for plain JSONL unless `counted` is set."""
    with opened(file, blobs) as source:
        if file.format == "jsonl" and file.compression is None and not counted:
            return _byte_pieces(index, file, _guessed_bytes(source, file, target))
        parts = list(_cuts(_data_blocks(file, source), target))
    if file.is_cut_by_bytes:
        stops = [*(begin for begin, _, _ in parts[1:]), file.size_bytes]
        return [Piece(index, begin, stop, rows, size) for (begin, rows, size), stop in zip(parts, stops, strict=False)]
    sizes = _fewer([(rows, size) for _, rows, size in parts])
    ends = accumulate(rows for rows, _ in sizes)
    return [Piece(index, end - rows, end, rows, size) for end, (rows, size) in zip(ends, sizes, strict=True)]


def _fewer(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows and bytes of at most _MOST_PACKED_PIECES pieces: neighbours together, evenly, where there are more."""
    count = min(len(parts), _MOST_PACKED_PIECES)
    cuts = [len(parts) * k // count for k in range(count + 1)] if count else []
    groups = (parts[a:b] for a, b in pairwise(cuts))
    return [(sum(rows for rows, _ in group), sum(size for _, size in group)) for group in groups]


def _cuts(blocks: Iterator[RecordBlock], target: ShardTarget) -> Iterator[tuple[int, int, int]]:
    """For each piece: where it begins in the text, its rows and its bytes."""
    begin, rows, size = -1, 0, 0
    for block in blocks:
        sizes = np.cumsum(np.maximum(1, block.stops - block.starts))
        at = 0
        while at < len(block):
            begin = int(block.begins[at]) if begin < 0 else begin
            done = int(sizes[at - 1]) if at else 0
            stop = min(at + target.rows - rows, len(block))
            rows, size = rows + stop - at, size + (int(sizes[stop - 1]) - done if stop > at else 0)
            at = stop
            if at < len(block):
                yield begin, rows, size
                begin, rows, size = -1, 0, 0
    if rows:
        yield begin, rows, size


def _guessed_bytes(source: Source, file: InputFile, target: ShardTarget) -> float:
    """Bytes a piece, by the file's own first lines."""
    rows = size = 0
    for block in records(range_chunks(source, 0, min(file.size_bytes, _HEAD_BYTES)), LineEnds()):
        rows += len(block)
        size = int(block.begins[-1]) + int(block.stops[-1] - block.starts[-1]) if len(block) else size
        if rows >= _HEAD_ROWS:
            break
    return max(1.0, target.rows * max(1, size) / max(1, rows))


def _byte_pieces(index: int, file: InputFile, piece_bytes: float) -> list[Piece]:
    count = max(1, round(file.size_bytes / piece_bytes))
    cuts = [file.size_bytes * k // count for k in range(count + 1)]
    return [Piece(index, a, b, None, b - a) for a, b in pairwise(cuts) if b > a]


def text_batches(
    piece: Piece, file: InputFile, blobs: Blobs, wanted: WantedColumns, batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The piece's rows."""
    seen = 0
    with opened(file, blobs) as source:
        rows = _rows(file, source, wanted)
        for block in _data_blocks(file, source, piece):
            for part in bounded(block, batch_rows, batch_bytes):
                seen += len(part)
                yield rows.batch(part)
        if piece.rows is not None and seen != piece.rows:
            raise EOFError(f"the file has {seen} rows, but had {piece.rows} when the job listed it")


def piece_lines(piece: Piece, file: InputFile, blobs: Blobs) -> Iterator[bytes]:
    """The lines of a piece of JSONL as they are, without blank ones; empty where one is too long to be read."""
    with opened(file, blobs) as source:
        for block in _data_blocks(file, source, piece):
            yield from block.rows()


def _rows(file: InputFile, source: Source, wanted: WantedColumns) -> JsonRows | CsvRows:
    if file.format == "jsonl":
        return JsonRows(wanted)
    names = csv_header(file, source)
    return CsvRows(names, file, wanted if names else WantedColumns(()))  # without a header there is no row either


def _ends(file: InputFile) -> RecordEnds:
    return LineEnds() if file.format == "jsonl" else QuotedEnds(ord(delimiter_of(file)))


def _data_blocks(file: InputFile, source: Source, piece: Piece | None = None) -> Iterator[RecordBlock]:
    """The rows of a piece or of the whole file, without the header; raises InvalidInput at an unclosed quote."""
    begin = 0 if piece is None or not file.is_cut_by_bytes else piece.start
    with _quotes_explained(file, source, begin):
        yield from _blocks(file, source, piece)


@contextmanager
def _quotes_explained(file: InputFile, source: Source, begin: int = 0) -> Iterator[None]:
    """Names the line of an unclosed quote in what is read from byte `begin` on."""
    try:
        yield
    except UnclosedQuote as error:
        place, lines = error.place + (begin - text_start(source) if begin else 0), 1
        for chunk in whole_chunks(decompressed(source, file.compression)):
            lines += chunk[: max(0, place)].count(b"\n")
            place -= len(chunk)
        accepted = f"a file whose quotes are closed: the quote that opens on line {lines:,} never closes ({error})"
        raise InvalidInput(
            "inputs", file.location, f"{accepted}; correct that line, or remove the file from the input"
        ) from error


def _blocks(file: InputFile, source: Source, piece: Piece | None) -> Iterator[RecordBlock]:
    is_json = file.format == "jsonl"
    start, stop = (0, END) if piece is None else (piece.start, piece.stop)
    if file.compression is not None:
        blocks = records(whole_chunks(decompressed(source, file.compression)), _ends(file), blank_spaces=is_json)
        skipped = 0 if is_json else 1
        yield from window(blocks, start + skipped, min(END, stop + skipped))
        return
    stop = min(stop, file.size_bytes)
    if is_json:
        yield from records(line_chunks(source, start, stop), LineEnds(), start or text_start(source))
        return
    begin = start or text_start(source)
    blocks = records(range_chunks(source, begin, stop), _ends(file), begin, blank_spaces=False)
    yield from blocks if start else window(blocks, 1, END)


def csv_header(file: InputFile, source: Source) -> list[str]:
    """The names in a CSV's first row; none where it is empty."""
    chunks = whole_chunks(decompressed(source, file.compression), _HEADER_BYTES)
    with _quotes_explained(file, source):
        for block in records(chunks, _ends(file), blank_spaces=False):
            if len(block):
                if block.too_long[0]:
                    raise InvalidInput("inputs", file.location, f"a shorter header: {too_long()}")
                return header_names(block.row(0), file)
    return []
