"""Shards in work at a worker: in threads beside its engine, or in processes that prepare rows for it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from twoshift.batch.messages import Failed, Scored, WasRead
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.windows import Stopped
from twoshift.engine.window import described
from twoshift.errors import InvalidInput, TryLater, TwoshiftError

__all__ = ["Scoring", "ScoringThreads", "failed_by", "message_for"]

_SHARDS_AT_ONCE = 2  # the next one is read while the last rows of one are on the device


class Scoring(Protocol):
    """Answers WasRead, and then Scored or Failed, for each shard."""

    @property
    def at_once(self) -> int:
        """Shards that are read at the same time."""
        ...

    @property
    def preparers(self) -> int:
        """Processes of its own that it has."""
        ...

    def begin(self, lease: int, shard: int) -> None:
        """Score a shard under this lease."""
        ...

    def give_up(self, lease: int | None) -> None:
        """Nobody wants that shard any more; None: all of them."""
        ...

    def rows_done(self, by_model: int) -> int:
        """Rows of the input, where the model has done so many of its own."""
        ...

    def close(self) -> None:
        """Give up what is in work, and wait for its end."""
        ...


class ScoringThreads:
    """Scoring in threads of this process."""

    at_once = 1
    preparers = 0

    def __init__(self, scorer: ShardScorer, send: Callable[[WasRead | Scored | Failed], None]) -> None:
        self._scorer, self._send = scorer, send
        self._threads = ThreadPoolExecutor(_SHARDS_AT_ONCE, "twoshift-shard")
        self._stops: dict[int, threading.Event] = {}  # lease -> set where the shard is to be given up
        self._lock = threading.Lock()  # guards the one above

    def begin(self, lease: int, shard: int) -> None:
        """Score a shard under this lease."""
        with self._lock:
            stop = self._stops[lease] = threading.Event()
        self._threads.submit(self._score, lease, shard, stop)

    def give_up(self, lease: int | None) -> None:
        """Nobody wants that shard any more; None: all of them."""
        with self._lock:
            for each, stop in self._stops.items():
                if lease in (None, each):
                    stop.set()

    def rows_done(self, by_model: int) -> int:
        """Rows of the input, where the model has done so many of its own."""
        return self._scorer.rows_done(by_model)

    def close(self) -> None:
        """Give up what is in work, and wait for its end."""
        self.give_up(None)
        self._threads.shutdown(wait=True)
        self._scorer.close()

    def _score(self, lease: int, shard: int, stop: threading.Event) -> None:
        try:
            stats, published = self._scorer.score(shard, stop, lambda: self._send(WasRead(lease)))
            self._send(Scored(lease, stats, published))
        except Stopped:
            self._send(Failed(lease, "the shard was abandoned because the job is stopping", given_up=True))
        except BaseException as error:  # whatever it was, the coordinator has to know
            self._send(failed_by(lease, error))
        finally:
            with self._lock:
                del self._stops[lease]


def failed_by(lease: int, error: BaseException) -> Failed:
    """What became of a shard that raised this."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    message = "the disk of the output folder is full: free some disk space" if full else message_for(error)
    delayed = full or isinstance(error, TryLater)
    return Failed(lease, message, permanent=isinstance(error, InvalidInput), delayed=delayed)


def message_for(error: BaseException) -> str:
    """An error in a line, for people."""
    return str(error) if isinstance(error, TwoshiftError) else described(error)
