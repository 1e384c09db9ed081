"""Who looks after batches: in turns by owner, and what is about to end before what begins."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["FairQueue"]

_CLERKS = 3
_CHECKS = 2  # clerks who look through files; of one owner a single one
_OF_ONE = 2  # clerks who end batches of one owner


class _Task(NamedTuple):
    """Something to be done for a batch."""

    batch_id: str
    work: Callable[[str], None]


class _Turns:
    """What waits, by owner: each has its turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Task]] = {}

    def add(self, owner: str, task: _Task) -> None:
        self._waiting.setdefault(owner, deque()).append(task)

    def first(self, owner: str, batch_id: str) -> None:
        theirs = self._waiting.get(owner, deque())
        for task in [each for each in theirs if each.batch_id == batch_id]:
            theirs.remove(task)
            theirs.appendleft(task)

    def next(self, at_work: Counter[str], most: int) -> tuple[str, _Task] | None:
        """Of the owner who has waited longest for a turn, and has less than that at work."""
        owner = next((each for each in self._waiting if at_work[each] < most), None)
        if owner is None:
            return None
        theirs = self._waiting.pop(owner)
        task = theirs.popleft()
        if theirs:
            self._waiting[owner] = theirs  # after all others
        return owner, task


class FairQueue:
    """Any thread may call it. `work` is told the batch; what it raises ends nothing but that."""

    def __init__(self, name: str) -> None:
        self._looks: deque[_Task] = deque()
        self._endings, self._checks = _Turns(), _Turns()
        self._ending, self._checking = Counter[str](), Counter[str]()  # at work, by owner
        self._busy, self._closed = 0, False
        self._changed = threading.Condition()  # guards all of these
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True) for number in range(_CLERKS)
        ]

    def start(self) -> None:
        """Begin with what was asked for."""
        for thread in self._threads:
            thread.start()

    def close(self, until_s: float) -> bool:
        """Nothing is begun any more; whether all that was has ended by then."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left_s = min(threading.TIMEOUT_MAX, max(0.0, until_s - time.monotonic()))
            return self._changed.wait_for(lambda: not self._busy, left_s)

    def look(self, batch_id: str, work: Callable[[str], None]) -> None:
        """What takes no time goes before all else."""
        self._put(lambda: self._looks.append(_Task(batch_id, work)))

    def end(self, owner: str, batch_id: str, work: Callable[[str], None]) -> None:
        """What ends a batch."""
        self._put(lambda: self._endings.add(owner, _Task(batch_id, work)))

    def check(self, owner: str, batch_id: str, work: Callable[[str], None]) -> None:
        """What reads a file from end to end: one clerk never does."""
        self._put(lambda: self._checks.add(owner, _Task(batch_id, work)))

    def check_first(self, owner: str, batch_id: str) -> None:
        """Before the others of its owner, where it waits."""
        self._put(lambda: self._checks.first(owner, batch_id))

    def _put(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None and not self._closed:
                    self._changed.wait()
                if found is None or self._closed:
                    return
                at_work, owner, task = found
                at_work[owner] += 1
                self._busy += 1
            try:
                task.work(task.batch_id)
            finally:
                with self._changed:
                    at_work[owner] -= 1
                    self._busy -= 1
                    self._changed.notify_all()

    def _next(self) -> tuple[Counter[str], str, _Task] | None:
        if self._looks:
            return Counter(), "", self._looks.popleft()
        if found := self._endings.next(self._ending, _OF_ONE):
            return self._ending, *found
        if self._checking.total() < _CHECKS and (found := self._checks.next(self._checking, 1)):
            return self._checking, *found
        return None
