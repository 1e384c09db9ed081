"""Text cut into records, a bounded block of whole ones at a time: the one definition of a row that planning and reading
share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["LineEnds", "RecordBlock", "RecordEnds", "bounded", "records", "window"]

MOST_ROW_BYTES = 32 << 20  # a longer row is an error, not an allocation
_NEWLINE, _RETURN, _SPACE = 10, 13, 32

Places = NDArray[np.int64]


class RecordEnds(Protocol):
    """Finds where records end, chunk after chunk of one text."""

    def ends(self, chunk: NDArray[np.uint8]) -> Places:
        """The places just behind each record that ends in this chunk."""
        ...

    def close(self) -> None:
        """The text is at its end; raises where no record can end here."""
        ...


class LineEnds:
    """Every newline ends a record."""

    def ends(self, chunk: NDArray[np.uint8]) -> Places:
        """The places just behind each newline."""
        return np.flatnonzero(chunk == _NEWLINE) + 1

    def close(self) -> None:
        """A last line needs no newline."""


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Rows of text: `data[starts[k]:stops[k]]`, without their line ends; blank lines are no rows."""

    data: bytes
    starts: Places
    stops: Places
    begins: Places  # where in the text each row begins
    too_long: NDArray[np.bool_]  # larger than MOST_ROW_BYTES: of these there may be no data

    def __len__(self) -> int:
        return len(self.starts)

    def slice(self, start: int, stop: int) -> RecordBlock:
        """Some of its rows."""
        part = slice(start, stop)
        return RecordBlock(self.data, self.starts[part], self.stops[part], self.begins[part], self.too_long[part])

    def only(self, kept: NDArray[np.bool_]) -> RecordBlock:
        """The rows that are marked."""
        return RecordBlock(self.data, self.starts[kept], self.stops[kept], self.begins[kept], self.too_long[kept])

    def row(self, place: int) -> bytes:
        """One row's text."""
        return self.data[self.starts[place] : self.stops[place]]

    def rows(self) -> list[bytes]:
        """Each row's text."""
        data = self.data
        return [data[a:b] for a, b in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]


class _Held:
    """The beginning of a record whose end has not been seen; dropped once it is too long."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size_bytes = 0

    @property
    def is_lost(self) -> bool:
        return self.size_bytes > MOST_ROW_BYTES

    def add(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if self.is_lost:
            self.parts.clear()
        elif chunk:
            self.parts.append(chunk)


def records(
    chunks: Iterable[bytes], scanner: RecordEnds, at: int = 0, blank_spaces: bool = True
) -> Iterator[RecordBlock]:
    """The rows of a text whose first byte is at `at`; lines of nothing but spaces are none, unless told otherwise."""
    held, begin = _Held(), at
    for chunk in chunks:
        array = np.frombuffer(chunk, np.uint8)
        ends = scanner.ends(array)
        if not ends.size:
            held.add(chunk)
            at += len(chunk)
            continue
        last = int(ends[-1])
        yield _shown(_block(held, chunk[:last], ends, begin, at), blank_spaces)
        held = _Held()
        held.add(chunk[last:])
        begin, at = at + last, at + len(chunk)
    scanner.close()
    if held.size_bytes:  # no newline at the end
        yield _shown(_block(held, b"", np.zeros(1, np.int64), begin, at), blank_spaces)


def _block(held: _Held, chunk: bytes, ends: Places, begin: int, at: int) -> RecordBlock:
    """The records that end in `chunk`, which is at `at`; the first of them begins with what is held, at `begin`."""
    begins = np.concatenate(([begin], at + ends[:-1]))
    if held.is_lost:  # nothing of it is kept, so that its end cannot be taken for a row
        cut = int(ends[0])
        data, stops = chunk[cut:], ends - cut
    else:
        data = b"".join((*held.parts, chunk))
        stops = ends + (len(data) - len(chunk))
    starts = np.concatenate(([0], stops[:-1]))
    too_long = stops - starts > MOST_ROW_BYTES
    too_long[0] |= held.is_lost
    return RecordBlock(data, starts, _without_line_ends(data, starts, stops), begins, too_long)


def _without_line_ends(data: bytes, starts: Places, stops: Places) -> Places:
    if not data:
        return stops
    array = np.frombuffer(data, np.uint8)
    stops = stops - ((stops > starts) & (array[stops - 1] == _NEWLINE))
    return stops - ((stops > starts) & (array[stops - 1] == _RETURN))


def _shown(block: RecordBlock, blank_spaces: bool) -> RecordBlock:
    shown = block.too_long | (block.stops > block.starts)
    if blank_spaces and block.data:
        array = np.frombuffer(block.data, np.uint8)
        first = array[np.minimum(block.starts, len(array) - 1)]
        for place in np.flatnonzero(shown & (first <= _SPACE) & ~block.too_long).tolist():
            shown[place] = not block.row(place).isspace()
    return block if shown.all() else block.only(shown)


def window(blocks: Iterable[RecordBlock], start: int, stop: int) -> Iterator[RecordBlock]:
    """Rows [start, stop) of them; reads no further than that."""
    at = 0
    if start >= stop:
        return
    for block in blocks:
        end = at + len(block)
        if end > start and len(block):
            yield block.slice(max(0, start - at), min(len(block), stop - at))
        at = end
        if at >= stop:
            return


def bounded(block: RecordBlock, most_rows: int, most_bytes: int) -> Iterator[RecordBlock]:
    """The same rows in blocks of at most that many rows and bytes; a row that is larger by itself."""
    sizes = np.cumsum(block.stops - block.starts)
    start = 0
    while start < len(block):
        before = int(sizes[start - 1]) if start else 0
        fitting = int(np.searchsorted(sizes, before + most_bytes, "right"))
        stop = min(len(block), start + most_rows, max(start + 1, fitting))
        yield block.slice(start, stop)
        start = stop
