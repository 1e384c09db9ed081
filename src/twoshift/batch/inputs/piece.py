"""Pieces of files, and how large they should be."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from twoshift.errors import InvalidInput

__all__ = ["END", "READ_ERROR", "Piece", "Shard", "ShardTarget"]

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
class ShardTarget:
    """How much a shard should hold: at most about `rows`."""

    rows: int
    row_bytes: float = 100.0  # what a row is thought to have, where they are not counted

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InvalidInput("rows", self.rows, "at least one row per shard")

    @property
    def piece_bytes(self) -> float:
        """The bytes of a full shard whose rows are not counted."""
        return self.rows * max(1.0, self.row_bytes)

    def share(self, rows: int | None, size_bytes: int) -> float:
        """How much of a shard this would fill; 1 is all of it."""
        return size_bytes / self.piece_bytes if rows is None else rows / self.rows
