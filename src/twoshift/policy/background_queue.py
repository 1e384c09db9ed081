"""The queue of background rows. Rows are queued in blocks, so that a call can take thousands of them cheaply."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twoshift.errors import InvalidInput
from twoshift.types import CallSize, Lane

__all__ = ["BackgroundQueue", "Block", "Slice"]

_RANK = {Lane.MICRO: 0, Lane.BATCH: 1}


@dataclass(frozen=True, slots=True)
class Block:
    """Background rows that are queued together; rows are taken from the front."""

    key: int
    lengths: Sequence[int]
    lane: Lane = Lane.BATCH
    deadline_s: float = math.inf
    owed: bool = False  # would miss its deadline: may use the minimum share of the device
    alone: bool = False  # runs in its own calls: one of its rows may make calls fail
    owner: int = 0  # blocks with equal deadlines share the device by the weights of their owners
    weight: float = 1.0
    signature: int = 0  # rows of different signatures never share a call


class Slice(NamedTuple):
    """Rows `start` to `stop` of a block."""

    block: int
    lane: Lane
    start: int
    stop: int
    tokens: int


@dataclass(slots=True)
class _Queued:
    """A block in the queue, with running totals, so that cutting it is a binary search."""

    block: Block
    place: tuple[int, float, float, int]  # position: (rank of the lane, deadline, turn of the owner, arrival)
    tokens: list[int]  # tokens[i]: of the first i rows
    squares: list[int]
    longest: list[int]
    at: int = 0

    @classmethod
    def of(cls, block: Block, turn: float, arrival: int) -> _Queued:
        accumulate = itertools.accumulate
        return cls(
            block,
            (_RANK[block.lane], block.deadline_s, turn, arrival),
            list(accumulate(block.lengths, initial=0)),
            list(accumulate((n * n for n in block.lengths), initial=0)),
            list(accumulate(block.lengths, max, initial=0)),
        )

    @property
    def left(self) -> int:
        return len(self.block.lengths) - self.at

    def size_to(self, stop: int) -> CallSize:
        # longest[] runs from the block's start: an upper bound for what is left of it.
        tokens = self.tokens[stop] - self.tokens[self.at]
        return CallSize(stop - self.at, tokens, self.longest[stop], self.squares[stop] - self.squares[self.at])

    def cut(self, stop: int) -> Slice:
        """Take the rows up to `stop`."""
        part = Slice(self.block.key, self.block.lane, self.at, stop, self.tokens[stop] - self.tokens[self.at])
        self.at = stop
        return part


class BackgroundQueue:
    """Queue of blocks, ordered by lane, deadline, turn of the owner and arrival.

    The turn of an owner follows from the tokens that it has queued so far, divided by its weight: start-time fair
    queuing. Blocks of one owner never overtake each other.
    """

    def __init__(self) -> None:
        self.owed_blocks = 0  # number of owed blocks in _order
        self._blocks: dict[int, _Queued] = {}  # key -> block with at least one row left
        self._order: list[tuple[tuple[int, float, float, int], int]] = []  # sorted (place, key), without held blocks
        self._held: set[int] = set()  # owners whose blocks are not in _order
        self._turns: dict[int, float] = {}  # owner -> turn of its next block
        self._turn = 0.0  # of the block that started last: an idle owner saves no turns
        self._arrivals = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._order)

    def __contains__(self, key: int) -> bool:
        return key in self._blocks

    def rows(self) -> int:
        """Number of waiting rows."""
        return sum(queued.left for queued in self._blocks.values())

    def hold(self, owner: int) -> None:
        """Keep an owner's blocks in the queue without running them, until `release`."""
        if owner not in self._held:
            self._held.add(owner)
            for queued in self._of(owner):
                self._unlist(queued)

    def release(self, owner: int) -> None:
        """Let an owner's blocks run again."""
        if owner in self._held:
            self._held.remove(owner)
            for queued in self._of(owner):
                self._enlist(queued)

    def add(self, block: Block) -> None:
        """Queue a block."""
        if block.key in self._blocks or block.lane is Lane.ONLINE or len(block.lengths) == 0:
            accepted = "a key that is not in use, at least one row, and the lane `micro` or `batch`"
            raise InvalidInput("block", block.key, accepted)
        turn = max(self._turn, self._turns.get(block.owner, 0.0))
        queued = _Queued.of(block, turn, next(self._arrivals))
        self._turns[block.owner] = turn + queued.tokens[-1] / block.weight
        self._blocks[block.key] = queued
        if block.owner not in self._held:
            self._enlist(queued)

    def remove(self, key: int) -> Slice | None:
        """Remove a block; returns its remaining rows, or None if there are none."""
        queued = self._blocks.get(key)
        if queued is None:
            return None
        rest = queued.cut(len(queued.block.lengths))
        self._close(queued)
        return rest

    def has_owed(self, signature: int) -> bool:
        """Whether an owed block could share a call with rows of this signature."""
        return any((block := self._blocks[key].block).owed and block.signature == signature for _, key in self._order)

    def take(
        self,
        size: CallSize,
        max_rows: int,
        fits: Callable[[CallSize], bool],
        owed_only: bool = False,
        signature: int = 0,
    ) -> tuple[list[Slice], CallSize, int]:
        """As many rows as fit beside `size`: the slices, the size with them, and their signature.

        It is that of the rows in `size`, where there are any, and the first block's otherwise.
        """
        taken: list[Slice] = []
        at = 0
        while at < len(self._order) and size.rows < max_rows:
            queued = self._blocks[self._order[at][1]]
            block = queued.block
            if (owed_only and not block.owed) or (size.rows and (block.alone or block.signature != signature)):
                at += 1
                continue
            stop, size = _last_fitting(queued, size, max_rows, fits)
            if stop > queued.at:
                taken.append(queued.cut(stop))
                signature = block.signature
                self._turn = max(self._turn, queued.place[2])
            if queued.left:
                break
            self._close(queued)
            if block.alone:
                break
        return taken, size, signature

    def first_row(self) -> CallSize | None:
        """Size of the first row in the queue."""
        if not self._order:
            return None
        queued = self._blocks[self._order[0][1]]
        length = queued.block.lengths[queued.at]
        return CallSize(1, length, length, length * length)

    def row_tokens(self) -> int:
        """Mean tokens per row of the first block; 1 if the queue is empty."""
        if not self._order:
            return 1
        tokens = self._blocks[self._order[0][1]].tokens
        return max(1, round(tokens[-1] / (len(tokens) - 1)))

    def take_first_row(self) -> Slice:
        """Take the first row of the queue, whatever its size."""
        queued = self._blocks[self._order[0][1]]
        row = queued.cut(queued.at + 1)
        if not queued.left:
            self._close(queued)
        return row

    def _close(self, queued: _Queued) -> None:
        del self._blocks[queued.block.key]
        if queued.block.owner not in self._held:
            self._unlist(queued)
        if not self._blocks:
            self._turns.clear()
            self._turn = 0.0

    def _of(self, owner: int) -> list[_Queued]:
        return [queued for queued in self._blocks.values() if queued.block.owner == owner]

    def _enlist(self, queued: _Queued) -> None:
        bisect.insort(self._order, (queued.place, queued.block.key))
        self.owed_blocks += queued.block.owed

    def _unlist(self, queued: _Queued) -> None:
        del self._order[bisect.bisect_left(self._order, (queued.place, queued.block.key))]
        self.owed_blocks -= queued.block.owed


def _last_fitting(
    queued: _Queued, size: CallSize, max_rows: int, fits: Callable[[CallSize], bool]
) -> tuple[int, CallSize]:
    """The last row of the block, exclusive, that fits beside `size`, and the size with all of them.

    Cost only grows with rows, so it bisects; first it tries all, because the row cap is what usually bounds a call.
    """
    low, fitting = queued.at, size
    middle = high = min(len(queued.block.lengths), low + max_rows - size.rows)
    while low < high:
        larger = size.plus(queued.size_to(middle))
        if fits(larger):
            low, fitting = middle, larger
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low, fitting
