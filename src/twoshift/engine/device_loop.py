"""The life of an engine, whatever its model is: threads that run a device, from their start to their end."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol, Self

from twoshift.engine.flight import as_broken
from twoshift.engine.stats import Health, Queue
from twoshift.engine.waiting import BlockJob, BlockOwner
from twoshift.errors import Broken, TryLater
from twoshift.types import Lane

__all__ = ["DeviceLoop"]

_forks = [0]  # that lie between this process and its first; asking the system each time would cost more


def _forked() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_forked)


class _Device(Protocol):
    def close(self) -> None: ...


class _Queues(Protocol):
    """Who waits for the device; the engine's lock guards it."""

    def queues(self, now_s: float) -> dict[Lane, Queue]: ...

    def oldest_live_s(self, now_s: float) -> float: ...

    def is_overdue(self, now_s: float) -> bool:
        """Whether a live row waits for longer than it may: some bring much time."""
        ...

    def hold(self, owner: BlockOwner) -> None: ...

    def release(self, owner: BlockOwner) -> None: ...

    def forget_block(self, job: BlockJob) -> None: ...

    def take_blocks(self, owner: BlockOwner | None = None) -> list[BlockJob]:
        """Those of an owner, or all."""
        ...

    def take_live(self) -> list[Callable[[Exception], object]]:
        """All; how each is told that it fails."""
        ...


class DeviceLoop(ABC):
    """Takes work until it drains, is closed or dies; then nobody waits for ever."""

    call: ClassVar[str]  # what runs on the device, for people

    def __init__(self, device: _Device, queues: _Queues, clock: Callable[[], float]) -> None:
        self._device, self._queues, self._clock = device, queues, clock
        self._nobody = BlockOwner()
        self._lock = threading.RLock()  # guards all of an engine
        self._changed = threading.Condition(self._lock)
        self._forks = _forks[0]
        self._stopping: str | None = None  # why nothing new is taken
        self._dead: Broken | None = None
        self._threads: Sequence[threading.Thread] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now_s(self) -> float:
        """The clock that deadlines are on."""
        return self._clock()

    @property
    def why_dead(self) -> str:
        """What ended its loop for good; empty while it lives."""
        return "" if self._dead is None else str(self._dead)

    def health(self, longest_wait_s: float = 10.0) -> Health:
        """The watchdog's question: is the loop alive, and is nothing stuck?"""
        with self._lock:
            now_s = self._clock()
            running_s, oldest_s = self._running_s(now_s), self._queues.oldest_live_s(now_s)
            reason = self.why_dead
            if not reason and _forks[0] != self._forks:
                reason = "this process was forked from the process that runs the engine"
            elif not reason and running_s > longest_wait_s:
                reason = f"a {self.call} has been running on the device for {running_s:.3g} s"
            elif not reason and oldest_s > longest_wait_s and self._queues.is_overdue(now_s):
                reason = f"a row has been waiting in the queue for {oldest_s:.3g} s"
            return Health(not reason, reason, running_s, oldest_s)

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for the device."""
        with self._lock:
            return self._queues.queues(self._clock())

    def hold(self, owner: BlockOwner) -> None:
        """Its rows wait from the next call on, until `release`."""
        with self._lock:
            self._queues.hold(owner)
            self._changed.notify_all()

    def release(self, owner: BlockOwner) -> None:
        """Its rows run again."""
        with self._lock:
            self._queues.release(owner)
            self._changed.notify_all()

    def retire(self, owner: BlockOwner) -> None:
        """Nobody wants its rows any more: those that wait, held back or not, never run."""
        with self._lock:
            jobs = self._queues.take_blocks(owner)
            self.release(owner)
        _settle(jobs, TryLater("the job that submitted these rows has left the engine", 1.0))

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take nothing new, finish what is live, hand unfinished blocks back; False when time ran out first."""
        with self._lock:
            self._stopping = self._stopping or "draining"
            jobs = self._queues.take_blocks()
            self._changed.notify_all()
        _settle(jobs, TryLater("the engine is draining", 1.0))
        return self._join(timeout_s)

    def close(self) -> None:
        """Stop now: what waits fails, what runs is finished, the device is given back."""
        with self._lock:
            self._stopping = "closed"
            self._changed.notify_all()
        self._fail_everything(Broken("the engine was closed"))
        self._join(None)
        self._device.close()

    # For each engine

    @abstractmethod
    def _running_s(self, now_s: float) -> float:
        """How long the oldest call has been on the device."""

    def _forget_block(self, job: BlockJob) -> None:
        with self._lock:
            self._queues.forget_block(job)
            self._changed.notify_all()

    def _start(self, threads: Sequence[threading.Thread], start: bool) -> None:
        self._threads = threads
        for thread in threads if start else ():
            thread.start()

    def _check_open(self) -> None:
        if _forks[0] != self._forks:
            raise Broken("the engine does not run in a forked process: create the engine after the fork")
        if self._dead is not None:
            raise self._dead.with_traceback(None)  # it is raised again and again: its traceback must not grow
        if (error := self._stopped_by()) is not None:
            raise error

    def _closed_by(self) -> Exception | None:
        """Why nothing more is run; None where all is well."""
        return self._dead or self._stopped_by()

    def _stopped_by(self) -> Broken | TryLater | None:
        if self._stopping == "closed":
            return Broken("the engine is closed: create another one")
        return None if self._stopping is None else TryLater(f"the engine is {self._stopping}", 1.0)

    def _die(self, error: BaseException) -> Broken:
        """A loop ends under its calls."""
        with self._lock:
            dead = self._dead = self._dead or as_broken(error)
            self._changed.notify_all()
        self._fail_everything(dead)
        return dead

    def _fail_everything(self, error: Exception) -> None:
        with self._lock:
            live, jobs = self._queues.take_live(), self._queues.take_blocks()
        for fail in live:
            fail(error)
        _settle(jobs, error)

    def _join(self, timeout_s: float | None) -> bool:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _settle(jobs: Iterable[BlockJob], error: Exception) -> None:
    for job in jobs:
        job.future.settle(error)
