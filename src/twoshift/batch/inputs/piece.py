"""Pieces of files, and how large they should be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from twoshift.errors import InvalidInput

__all__ = ["END", "READ_ERROR", "Piece", "Shard", "Target"]

END = 2**63 - 1  # as a piece's stop: to the end, wherever that is
READ_ERROR = "__error__"  # the column that says why a row could not be read; null where it could


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A contiguous part of one file; a plan holds many, so it is written as an array.

    `start` and `stop` are bytes for plain text and rows for everything else.
    """

    file: int  # its place in the list of files
    start: int
    stop: int
    rows: int | None  # None: nobody has counted them
    bytes: int  # of input, about, uncompressed: what work is guessed from before rows are known


Shard = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """How much a shard should hold: at most about `rows` and `bytes`, whichever is reached first."""

    rows: int | None = None
    bytes: int | None = None
    row_bytes: float = 100.0  # what a row is thought to have, where rows are asked for and not counted

    def __post_init__(self) -> None:
        given = [most for most in (self.rows, self.bytes) if most is not None]
        if not given or min(given) < 1:
            raise InvalidInput("target", given, "at least one row or byte a shard")

    @property
    def piece_bytes(self) -> float:
        """The bytes of a full shard whose rows are not counted."""
        by_rows = math.inf if self.rows is None else self.rows * max(1.0, self.row_bytes)
        return max(1.0, min(by_rows, math.inf if self.bytes is None else self.bytes))

    def share(self, rows: int | None, size_bytes: int) -> float:
        """How much of a shard this would fill; 1 is all of it."""
        if rows is None:
            return size_bytes / self.piece_bytes
        by_rows = 0.0 if self.rows is None else rows / self.rows
        return max(by_rows, 0.0 if self.bytes is None else size_bytes / self.bytes)
