"""The port of a source: rows that keep coming, and how far they have been read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from twoshift.batch.inputs import InputFile, Piece

__all__ = ["Age", "Arrived", "Position", "StreamSource", "Waiting"]

Position = dict[str, Any]  # JSON-ready; only its source knows what it means


class Age(NamedTuple):
    """Rows that had been at the source for so long when they were taken."""

    seconds: float
    rows: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows that a source has given, as a job reads them: pieces of files, which may lie in memory alone."""

    files: tuple[InputFile, ...]
    pieces: tuple[Piece, ...]
    rows: int  # about, where nobody has counted them
    size_bytes: int
    position: Position  # after them
    ages: tuple[Age, ...]
    has_more: bool = False  # whether others wait already
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])  # of files in memory, by location
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])  # files that are given up, and why


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of rows that have not been taken."""

    rows: float | None  # None: the source cannot tell
    oldest_s: float = 0.0  # how long the oldest has waited
    notice: str = ""  # why there may be fewer than people think


class StreamSource(Protocol):
    """Used by one thread. Raises TryLater where the source does not answer, InvalidInput where it cannot be used."""

    needs_all_marks: bool  # whether it has to know the positions of all parts, and not of the last one alone

    @property
    def name(self) -> str:
        """As it may be shown."""
        ...

    def begin(self, marks: Sequence[Position]) -> None:
        """Connect, and go on behind what was committed: positions in the order of the parts."""
        ...

    def take(self, most_rows: int, most_bytes: int, wait_s: float) -> Arrived | None:
        """The next rows, at least one; None where none came in that time. A call never gives rows twice."""
        ...

    def waiting(self) -> Waiting:
        """What it knew when it was last asked for rows."""
        ...

    def merged(self, positions: Sequence[Position]) -> Position:
        """One in place of several that follow each other."""
        ...

    def close(self) -> None:
        """No more."""
        ...
