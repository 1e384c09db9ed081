"""Committed parts on their way to a subject or topic: each row a message, in order, once.

The parts are the stream's result. To send one is a step that is repeated until the broker has all of its rows.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from twoshift.batch.part_rows import part_batches
from twoshift.batch.plan import Plan
from twoshift.decodable import decodable
from twoshift.errors import InvalidInput, TryLater
from twoshift.policy.retries import RetryPolicy
from twoshift.ports import Blobs
from twoshift.retrying import retried
from twoshift.streams.progress import StreamCounts

__all__ = ["Outlet", "Sending", "WindowMessages", "row_of"]

_log = logging.getLogger(__name__)
_AGAIN = RetryPolicy(0.5, 30.0, math.inf)
_CHUNK_ROWS = 4096
_MARK, _MARK_EVERY_S = "_twoshift/sent.json", 10.0


class Outlet(Protocol):
    """A subject or topic. Raises TryLater where it does not answer, InvalidInput where it cannot be used."""

    shown: str  # its name, without secrets

    def sent(self, job: str) -> int:
        """How many windows of the stream are there, whole; those that are there in part are not counted."""
        ...

    def send(self, window: WindowMessages) -> None:
        """All rows of a window, or those that are not there yet."""
        ...

    def close(self) -> None:
        """No more."""
        ...


@decodable
class SentMark(msgspec.Struct, frozen=True):
    """How many windows a place has at least: kept beside the parts, for the day when its last messages have expired."""

    place: str
    windows: int


class WindowMessages:
    """The rows of a committed window, as messages."""

    def __init__(self, job: str, number: int, plan: Plan, output: Blobs) -> None:
        self.job, self.number, self._plan, self._output = job, number, plan, output

    def chunks(self) -> Iterator[list[bytes]]:
        """JSON objects with the columns of the part, in order."""
        for batch in part_batches(self._output, self._plan, self.number, _CHUNK_ROWS):
            yield [msgspec.json.encode(row, enc_hook=str) for row in batch.to_pylist()]

    def id_of(self, row: int) -> str:
        """The same in every attempt."""
        return f"{self.job}-{self.number}-{row}"


class Sending:
    """Sends windows by a thread of its own, in order."""

    def __init__(self, outlet: Outlet, job: str, plan: Plan, output: Blobs, counts: StreamCounts) -> None:
        self._outlet, self._job, self._plan, self._output, self._counts = outlet, job, plan, output, counts
        self._changed = threading.Condition()
        self._committed, self._sent, self._is_closed = 0, 0, False  # guarded by it, as the next one
        self._failure: Exception | None = None
        self._mark_due_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="twoshift-send", daemon=True)

    @property
    def next_window(self) -> int:
        """The first that is not sent."""
        return self._sent

    def begin(self, unmerged: Sequence[int], committed: int) -> None:
        """So many windows are committed; raises InvalidInput where one that was not sent is merged into others."""
        try:
            found = retried(lambda: self._outlet.sent(self._job), _AGAIN, self._may_retry, self._stop.wait)
        except TryLater:
            if self._stop.is_set():  # the next run sends them
                return
            raise
        self._sent = max(found, self._marked())
        missing = set(range(self._sent, committed)) - set(unmerged)
        if missing:
            accepted = (
                f"a destination that already has the results of window {min(missing)}; the stream cannot send these "
                "results any more, because the part of this window was merged into a larger part"
            )
            raise InvalidInput("to", self._outlet.shown, accepted)
        self._committed = committed
        self._thread.start()

    def add(self, committed: int) -> None:
        """So many windows are committed by now; raises what sending has failed with."""
        with self._changed:
            self._committed = committed
            self._changed.notify()
        if self._failure is not None:
            raise self._failure

    def finish(self, most_s: float | None) -> None:
        """Wait until all is sent; raises what it has failed with. What is left is sent by the next run."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._sent >= self._committed or self._failure or self._stop.is_set(), most_s
            )
        if self._failure is not None:
            raise self._failure

    @property
    def is_begun(self) -> bool:
        """Whether the place has answered."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Give up what is not sent: the next run sends it."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let go."""
        self.stop()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        if self._sent:
            self._mark()
        self._outlet.close()

    def _work(self) -> None:
        try:
            while (number := self._awaited()) is not None:
                window = WindowMessages(self._job, number, self._plan, self._output)
                retried(lambda window=window: self._outlet.send(window), _AGAIN, self._may_retry, self._stop.wait)
                with self._changed:
                    self._sent = number + 1
                    self._changed.notify_all()
                if time.monotonic() >= self._mark_due_s:
                    self._mark()
        except Exception as error:
            with self._changed:
                self._failure = None if self._stop.is_set() else error
                self._changed.notify_all()

    def _mark(self) -> None:
        self._mark_due_s = time.monotonic() + _MARK_EVERY_S
        with contextlib.suppress(OSError, TryLater):  # a full disk: the place itself tells, too
            data = msgspec.json.encode(SentMark(self._outlet.shown, self._sent))
            self._output.write(f"{self._plan.settings.output.rstrip('/')}/{_MARK}", data)

    def _marked(self) -> int:
        found = self._output.read(f"{self._plan.settings.output.rstrip('/')}/{_MARK}")
        try:
            mark = SentMark("", 0) if found is None else msgspec.json.decode(found, type=SentMark)
        except msgspec.DecodeError:  # half a file: the place itself tells
            return 0
        return mark.windows if mark.place == self._outlet.shown else 0

    def _awaited(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._stop.is_set() or self._sent < self._committed)
            return None if self._is_closed or self._stop.is_set() else self._sent

    def _may_retry(self, error: Exception, _: float) -> bool:
        if not isinstance(error, TryLater):
            return False
        self._counts.problem("outlet", str(error))
        _log.warning("results could not be sent, and are sent again: %s", error)
        return True


def row_of(message_id: str, job: str) -> tuple[int, int] | None:
    """The window and the row of a message that this stream has sent; None for others."""
    words = message_id.rsplit("-", 2)
    if len(words) != 3 or words[0] != job or not (words[1].isdigit() and words[2].isdigit()):
        return None
    return int(words[1]), int(words[2])
