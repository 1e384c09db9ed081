"""Who waits for the device: live rows and pieces of blocks, by the keys that the policy knows them by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.engine.results import BlockAccumulator, BlockFuture, RowResult, RowSink
from twoshift.engine.signatures import Signatures
from twoshift.engine.stats import Queue
from twoshift.errors import InvalidInput
from twoshift.policy.background_queue import Block, Slice
from twoshift.policy.lane_values import LaneUse
from twoshift.policy.lanes import LanePolicy
from twoshift.ports import Prepared
from twoshift.types import Item, Lane

__all__ = [
    "BlockJob",
    "BlockOwner",
    "BlockPiece",
    "LiveRow",
    "LiveRows",
    "TriedPiece",
    "Waiting",
    "lengths_of",
    "parts_of",
]


class LiveRow(msgspec.Struct):
    """A live row that waits or runs."""

    rows: Prepared
    at: int
    future: RowSink
    arrived_s: float
    deadline_s: float
    tokens: int
    tenant: str = ""  # who pays


def lengths_of(rows: Prepared) -> NDArray[np.int64]:
    """Tokens of each row; raises InvalidInput for rows that were not prepared."""
    lengths = getattr(rows, "lengths", None)
    if lengths is None:
        raise InvalidInput("rows", rows, "rows returned by engine.runtime.prepare(rows)")
    return lengths


def parts_of(rows: Sequence[LiveRow]) -> list[Prepared]:
    """What a call over these rows is made of; those that lie side by side stay together."""
    parts, start = list[Prepared](), 0
    for at in range(1, len(rows) + 1):
        first = rows[start]
        if at < len(rows) and rows[at].rows is first.rows and rows[at].at == first.at + at - start:
            continue
        whole = first.rows
        is_all = len(whole.lengths) == at - start
        parts.append(whole if is_all else whole.slice(first.at, first.at + at - start))
        start = at
    return parts


class LiveRows(NamedTuple):
    """A request's rows: as many as there are sinks, from `start` on, of rows that were prepared together."""

    rows: Prepared
    start: int
    sinks: Sequence[RowSink]
    deadline_s: float
    tenant: str = ""  # who pays
    since_s: float | None = None  # when its time began, where that is not now
    spare_s: float = 0.0  # before its deadline, that it is admitted by


@dataclass(slots=True, eq=False)
class BlockOwner:
    """Whose blocks they are, and what they have had of the device."""

    key: int = 0
    weight: float = 1.0  # of its share, where others want the device, too
    deadline_s: float = math.inf  # of what it submits from now on: who has the earlier one goes first
    owed: bool = False  # its deadline has no slack left: it may draw on the minimum share
    use: LaneUse = field(default_factory=LaneUse)
    riding_s: float = 0.0  # of the device time: in calls that live rows paid the overhead of
    lane: Lane = Lane.BATCH  # of what it submits: a stream's rows go before those of jobs

    def had(self, rows: int, tokens: int, device_s: float, riding: bool) -> None:
        """Its part of a call."""
        self.use.rows += rows
        self.use.tokens += tokens
        self.use.device_s += device_s
        if riding:
            self.use.riding_rows += rows
            self.riding_s += device_s


@dataclass(slots=True, eq=False)
class BlockJob:
    """A block that was submitted, however often it has been cut since."""

    rows: Prepared
    lane: Lane
    deadline_s: float
    owed: bool
    future: BlockFuture
    filling: BlockAccumulator
    arrived_s: float
    owner: BlockOwner
    keys: set[int] = field(default_factory=set[int])  # of its parts in the policy

    def settle_if_full(self) -> None:
        """Answer once every row has a result or an error."""
        if self.filling.left == 0:
            self.future.settle(self.filling.result())


@dataclass(slots=True)
class BlockPiece:
    """Rows `start` to `stop` of a block that was submitted."""

    job: BlockJob
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def prepared(self) -> Prepared:
        """Its rows."""
        return self.job.rows.slice(self.start, self.stop)

    def fail(self, error: Exception) -> None:
        """Its rows have no result."""
        self.job.filling.fail(self.start, self.stop, error)
        self.job.settle_if_full()


class TriedPiece:
    """What waits for a row of a block that is asked as a live one."""

    __slots__ = ("_lock", "_piece")

    def __init__(self, piece: BlockPiece, lock: AbstractContextManager[object]) -> None:
        """`lock` guards the books of the block's owner."""
        self._piece: BlockPiece | None = piece
        self._lock = lock

    def settle(self, result: RowResult | Exception) -> None:
        """Into its block with it; it may come twice, and the first counts."""
        piece, self._piece = self._piece, None
        if piece is None:
            return
        if isinstance(result, Exception):
            piece.fail(result)
            return
        job, tokens = piece.job, int(piece.job.rows.lengths[piece.start])
        with self._lock:
            job.filling.device_s += result.forward_s
            job.owner.had(1, tokens, result.forward_s, False)
        job.filling.put(piece.start, piece.stop, result.columns, result.index)
        job.settle_if_full()


class Waiting:
    """The rows behind the policy's keys. The engine's lock guards it."""

    def __init__(self, policy: LanePolicy) -> None:
        self._policy = policy
        self._rows: dict[int, LiveRow] = {}
        self._parts: dict[int, tuple[BlockJob, int]] = {}  # key -> block, and where in it the part's row 0 is
        self._keys = itertools.count()
        self.signatures = Signatures()

    def new_key(self) -> int:
        """One that the policy has not seen."""
        return next(self._keys)

    def add_rows(self, items: Sequence[Item], rows: Sequence[LiveRow], now_s: float) -> None:
        """The live rows of a request that was admitted."""
        for item, row in zip(items, rows, strict=True):
            self._rows[item.key] = row
        self._policy.submit_together(items, now_s)

    def add_each(self, items: Sequence[Item], rows: Sequence[LiveRow], now_s: float) -> None:
        """The live rows of several requests that were admitted."""
        self._rows.update(zip([item.key for item in items], rows, strict=True))
        for item in items:
            self._policy.submit(item, now_s)

    def add_piece(self, piece: BlockPiece, now_s: float, alone: bool = False) -> None:
        """Rows of a block, new or come back; `alone` keeps them apart from everybody else."""
        key, job = self.new_key(), piece.job
        lengths = job.rows.lengths[piece.start : piece.stop].tolist()
        self._parts[key] = (job, piece.start)
        job.keys.add(key)
        owner = job.owner
        signature = self.signatures.number(job.rows.signature)
        block = Block(key, lengths, job.lane, job.deadline_s, job.owed, alone, owner.key, owner.weight, signature)
        self._policy.submit_block(block, now_s)

    def take(self, live: tuple[Item, ...], background: tuple[Slice, ...]) -> tuple[list[LiveRow], list[BlockPiece]]:
        """The rows that the policy has decided on."""
        return [self._rows.pop(item.key) for item in live], [self._take_piece(part) for part in background]

    def forget_row(self, key: int) -> bool:
        """A live row is no longer wanted; whether it still waited."""
        waited = self._policy.cancel(key)
        if waited:
            del self._rows[key]
        return waited

    def hold(self, owner: BlockOwner) -> None:
        """Its rows wait from the next call on."""
        self._policy.hold(owner.key)

    def release(self, owner: BlockOwner) -> None:
        """They wait no longer."""
        self._policy.release(owner.key)

    def forget_block(self, job: BlockJob) -> None:
        """A block is no longer wanted."""
        for key in job.keys:
            self._policy.cancel_block(key)
            del self._parts[key]
        job.keys.clear()

    def queues(self, now_s: float) -> dict[Lane, Queue]:
        """How many rows wait in each lane, and for how long the first of them has."""
        found = dict.fromkeys(Lane, Queue(0, 0.0))
        found[Lane.ONLINE] = Queue(len(self._rows), self.oldest_live_s(now_s))
        for job in {id(job): job for job, _ in self._parts.values()}.values():
            before = found[job.lane]
            found[job.lane] = Queue(before.rows + job.filling.left, max(before.oldest_s, now_s - job.arrived_s))
        return found

    def take_live(self) -> list[Callable[[Exception], object]]:
        """Every live row, taken out of the policy; how each is told that it fails."""
        rows = list(self._rows.values())
        for key in tuple(self._rows):
            self.forget_row(key)
        return [row.future.settle for row in rows]

    def take_blocks(self, owner: BlockOwner | None = None) -> list[BlockJob]:
        """Every block that has rows waiting, or every one of an owner's, taken out of the policy."""
        found = {id(job): job for job, _ in self._parts.values() if owner is None or job.owner is owner}
        for job in found.values():
            self.forget_block(job)
        return list(found.values())

    def oldest_live_s(self, now_s: float) -> float:
        """How long the live row that waits longest has waited."""
        return max((now_s - row.arrived_s for row in self._rows.values()), default=0.0)

    def is_overdue(self, now_s: float) -> bool:
        """Whether a live row waits although its deadline has passed."""
        return any(row.deadline_s < now_s for row in self._rows.values())

    def _take_piece(self, part: Slice) -> BlockPiece:
        job, offset = self._parts[part.block]
        if part.block not in self._policy.background:
            del self._parts[part.block]
            job.keys.discard(part.block)
        return BlockPiece(job, offset + part.start, offset + part.stop)
