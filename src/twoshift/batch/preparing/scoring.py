"""Shards in work in preparing processes, which hand their rows to this one's engine; in threads until one runs."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from twoshift.batch.kinds.known import kind_of
from twoshift.batch.messages import Failed, FromWorker, GiveUp, Score, Scored, WasRead
from twoshift.batch.preparing.child import ChildTask, Heard, PreparingChild
from twoshift.batch.preparing.messages import Given, Submitted, Wrote
from twoshift.batch.preparing.preparers import Preparers
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.scoring import ScoringThreads
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.waiting import BlockOwner

__all__ = ["ScoringProcesses"]

_MEASURED_ROWS = 16_384  # before which their cost is a guess
_CLOSE_S = 2.0  # for processes to give up what they have


@dataclass(slots=True)
class _Work:
    """What a process has to do, and what it has cost."""

    leases: set[int] = field(default_factory=set[int])
    unread: set[int] = field(default_factory=set[int])  # of these: still read
    rows: int = 0  # handed to the engine
    host_s: float = 0.0


class ScoringProcesses:
    """A Scoring. A shard that finds no process free gets a new one; one that dies loses its own shards.

    Where processes may have to wait for room, they are asked for ahead, and have shards once they run; until then
    threads of this process do what they would.
    """

    def __init__(
        self, given: Given, engine: BlockTaker, owner: BlockOwner, preparers: Preparers,
        send: Callable[[FromWorker], None],
    ) -> None:  # fmt: skip
        self._owner, self._preparers, self._send = owner, preparers, send
        self._settings, self._planned_s = given.plan.settings, given.plan.seconds_per_row
        self._kind = kind_of(self._settings)
        self._task = ChildTask(pickle.dumps(given), given.preparer, engine, owner, self._hear, self._ended)
        scorer = ShardScorer(engine, given.plan, given.blobs_for, given.worker, owner, self._wrote)
        self._threads = ScoringThreads(scorer, self._say)
        self._work = dict[PreparingChild, _Work]()
        self._gone = _Work()  # what processes that are no more have cost
        self._written = 0  # rows of the input
        self._count = 1
        self._closing = False
        self._lock = threading.Lock()  # guards all of these

    @property
    def at_once(self) -> int:
        """As many as there should be processes, and can be: more, where the measured cost says so, and never fewer."""
        with self._lock:
            wanted = self._preparers.policy.wanted(self._device_s_per_row(), self._host_s_per_row())
            self._count = max(self._count, wanted)
            if not self._closing:
                self._preparers.want(self._count - len(self._work))
            return max(1, min(self._count, len(self._work) + self._preparers.can_take))

    @property
    def preparers(self) -> int:
        """Processes that there are."""
        with self._lock:
            return len(self._work)

    def begin(self, lease: int, shard: int) -> None:
        """Score a shard under this lease."""
        with self._lock:
            child = self._free_child()
            if child is not None:
                self._work[child].leases.add(lease)
                self._work[child].unread.add(lease)
        if child is None:
            self._threads.begin(lease, shard)
        else:
            child.tell(Score(lease, shard))

    def give_up(self, lease: int | None) -> None:
        """Nobody wants that shard any more; None: all of them."""
        with self._lock:
            having = [child for child, work in self._work.items() if lease is None or lease in work.leases]
        for child in having:
            child.tell(GiveUp(lease))
        self._threads.give_up(lease)

    def rows_done(self, by_model: int) -> int:
        """Rows of the input, where the model has done so many of its own."""
        return self._kind.rows_done(self._settings, by_model, self._written)

    def close(self) -> None:
        """Give up what is in work, and wait for its end."""
        with self._lock:
            self._closing, children = True, list(self._work)
        for child in children:
            child.tell(None)
        until_s = time.monotonic() + _CLOSE_S
        for child in children:
            if not child.join(max(0.0, until_s - time.monotonic())):
                child.kill()
                child.join()
        self._preparers.close()
        self._threads.close()

    def _free_child(self) -> PreparingChild | None:
        """The one with the least to do; a new one where all have something to read and there may be more."""
        found = min(self._work, key=lambda child: self._load(child), default=None)
        if found is not None and not (self._work[found].unread and len(self._work) < self._count):
            return found
        if (new := self._preparers.take()) is None:
            return found
        self._work[new] = _Work()
        new.begin(self._task)
        return new

    def _load(self, child: PreparingChild) -> tuple[int, int]:
        return len(self._work[child].unread), len(self._work[child].leases)

    def _hear(self, child: PreparingChild, message: Heard) -> None:
        with self._lock:
            work = self._work[child]
            match message:
                case Submitted(_, rows):
                    work.rows, work.host_s = work.rows + rows, message.host_s
                    self._preparers.was_fit()
                case Wrote(rows):
                    self._written += rows
                case WasRead(lease):
                    work.unread.discard(lease)
                case Scored(lease) | Failed(lease):
                    work.unread.discard(lease)
                    work.leases.discard(lease)
                case _:
                    assert_never(message)
        if not isinstance(message, Submitted | Wrote):
            self._say(message)

    def _ended(self, child: PreparingChild, how: str) -> None:
        with self._lock:
            work, closing = self._work.pop(child), self._closing
            self._gone.rows, self._gone.host_s = self._gone.rows + work.rows, self._gone.host_s + work.host_s
            if child.unfit:
                self._preparers.was_unfit(child)
        for lease in work.leases:
            self._say(Failed(lease, f"the preparing process {how}", given_up=closing or bool(child.unfit)))

    def _wrote(self, rows: int) -> None:
        """By threads of ours."""
        with self._lock:
            self._written += rows

    def _say(self, message: FromWorker) -> None:
        with contextlib.suppress(OSError):  # the coordinator is gone, and so are we in a moment
            self._send(message)

    def _device_s_per_row(self) -> float:
        use = self._owner.use
        return use.device_s / use.rows if use.rows >= _MEASURED_ROWS else self._planned_s

    def _host_s_per_row(self) -> float:
        works = [self._gone, *self._work.values()]
        rows = sum(work.rows for work in works)
        return sum(work.host_s for work in works) / rows if rows >= _MEASURED_ROWS else self._preparers.host_s_per_row
