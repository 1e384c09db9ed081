"""Where the rows of a window come from, so that an error can name a row as its user knows it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from twoshift.batch.inputs import Piece
from twoshift.batch.plan import Plan

__all__ = ["Origin", "Origins"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A stretch of a window's rows that lie together in one file."""

    at: int  # its first row in the window
    piece: Piece
    seen: int  # rows of the piece before it


class Origins:
    """Names rows of a plan's input: `docs/a.csv, row 17`, counted from 1 and without the header."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def name(self, origins: tuple[Origin, ...], place: int) -> str:
        """The row at that place of a window."""
        origin = origins[bisect_right(origins, place, key=lambda each: each.at) - 1]
        piece, number = origin.piece, origin.seen + place - origin.at + 1
        location = self._plan.files[piece.file].location
        before = self._rows_before.get((piece.file, piece.start))
        if before is None:  # nobody has counted them
            return f"{location}, row {number} after byte {piece.start}"
        return f"{location}, row {before + number}"

    @cached_property
    def _rows_before(self) -> dict[tuple[int, int], int]:
        """Of each piece the rows of its file before it, where they are known."""
        found: dict[tuple[int, int], int] = {}
        counted: dict[int, int | None] = {}  # file -> rows up to here
        for piece in (piece for shard in self._plan.shards for piece in shard):
            by_rows = not self._plan.files[piece.file].is_cut_by_bytes
            before = piece.start if by_rows else counted.get(piece.file, 0)
            if before is not None:
                found[piece.file, piece.start] = before
            counted[piece.file] = None if before is None or piece.rows is None else before + piece.rows
        return found
