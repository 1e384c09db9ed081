"""Workers of a job, wherever they run, as the coordinator sees them; and processes on this machine."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Protocol

import msgspec

from twoshift.batch.device import WorkDevice
from twoshift.batch.messages import FromWorker, ToWorker
from twoshift.batch.settings import JobSettings
from twoshift.logs import follow_parent_log
from twoshift.parent_process import name_process, signals_blocked
from twoshift.ports import Blobs

__all__ = ["Died", "FromPool", "Joined", "Left", "LocalPool", "WorkerPool"]

_STOP = None  # in place of a message: no more will come
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Died:
    """A worker is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker that nobody has asked for: there is a place more."""


@dataclass(frozen=True, slots=True)
class Left:
    """A worker has gone with its place, and nobody is to blame; what it had in work is for others to do."""


FromPool = FromWorker | Died | Joined | Left


class WorkerPool(Protocol):
    """Workers by number."""

    def start(self) -> int:
        """A new worker, loading its model."""
        ...

    def send(self, worker: int, message: ToWorker) -> None:
        """A message to a worker; lost where it is gone."""
        ...

    def poll(self, timeout_s: float) -> Sequence[tuple[int, FromPool]]:
        """What workers have said since, waiting for the first of it; each dead one is named once."""
        ...

    def kill(self, worker: int) -> None:
        """End a worker that hangs; `poll` will say that it died."""
        ...

    def close(self, grace_s: float) -> None:
        """End them all: in peace where they go in time."""
        ...


@dataclass(slots=True)
class _Process:
    process: Any
    pipe: Any


class LocalPool:
    """A process each, with a pipe; they end by themselves when the coordinator is gone."""

    def __init__(
        self,
        settings: JobSettings,
        threads: int,
        load: Callable[[JobSettings], WorkDevice],
        blobs_for: Callable[[str], Blobs],
    ) -> None:
        self._context = multiprocessing.get_context("spawn")  # a fork would share locks and device handles
        self._given = (msgspec.json.encode(settings), threads, load, blobs_for)
        self._numbers = itertools.count()
        self._workers: dict[int, _Process] = {}

    def start(self) -> int:
        """A new worker, loading its model."""
        number = next(self._numbers)
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_main, args=(theirs, number, *self._given), daemon=True)
        with signals_blocked(_SIGNALS), _without_main():  # what is to end is for the coordinator to say
            process.start()
        theirs.close()  # or its end would never be seen
        self._workers[number] = _Process(process, ours)
        return number

    def send(self, worker: int, message: ToWorker) -> None:
        """A message to a worker; lost where it is gone."""
        found = self._workers.get(worker)
        if found is not None:
            with contextlib.suppress(OSError):
                found.pipe.send(message)

    def poll(self, timeout_s: float) -> list[tuple[int, FromWorker | Died]]:
        """What workers have said since, waiting for the first of it; each dead one is named once."""
        if not self._workers:
            time.sleep(timeout_s)
            return []
        heard: list[tuple[int, FromWorker | Died]] = []
        connection.wait([each.pipe for each in self._workers.values()], timeout_s)
        for number, each in tuple(self._workers.items()):
            is_over = not each.process.is_alive()  # looked at first: what it said before its end is still in the pipe
            try:
                while each.pipe.poll():
                    heard.append((number, each.pipe.recv()))
            except (EOFError, OSError):
                is_over = True
            if is_over:  # by its process, because a child that a model has forked may hold the pipe open
                heard.append((number, self._bury(number)))
        return heard

    def kill(self, worker: int) -> None:
        """End a worker that hangs; `poll` will say that it died."""
        if worker in self._workers:
            self._workers[worker].process.kill()

    def close(self, grace_s: float) -> None:
        """End them all: in peace where they go in time."""
        until_s = time.monotonic() + grace_s
        for each in self._workers.values():
            with contextlib.suppress(OSError):
                each.pipe.send(_STOP)
        for each in self._workers.values():
            each.process.join(max(0.0, until_s - time.monotonic()))
            if each.process.is_alive():
                each.process.kill()
                each.process.join()
            each.pipe.close()
        self._workers.clear()

    def _bury(self, number: int) -> Died:
        gone = self._workers.pop(number)
        gone.process.join(5.0)
        if gone.process.is_alive():
            gone.process.kill()
            gone.process.join()
        gone.pipe.close()
        code = gone.process.exitcode
        if code is not None and code < 0:
            return Died(f"killed by {signal.Signals(-code).name}")
        return Died(f"exited with code {code}")


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A worker needs nothing of the program that starts it: a script of a user would run again in each of them."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _main(pipe: Any, number: int, encoded: bytes, threads: int, load: Any, blobs_for: Any) -> None:
    """A worker process: the coordinator decides when it ends, not the terminal."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    name_process(f"ts-worker-{number}")
    follow_parent_log()
    os.dup2(2, 1)  # what a model prints must not get between the lines of --json
    from twoshift.batch.worker import ShardWorker
    from twoshift.runtime.devices import share_threads

    share_threads(threads)
    settings = msgspec.json.decode(encoded, type=JobSettings)
    lock = threading.Lock()

    def send(message: FromWorker) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            pipe.send(message)

    worker = ShardWorker(settings, f"{os.uname().nodename}:{number}", load, blobs_for, send)
    worker.start()
    with contextlib.suppress(EOFError, OSError):  # the coordinator is gone
        while (message := pipe.recv()) is not _STOP:
            worker.handle(message)
        worker.close()
    os._exit(0)  # threads of libraries must not keep us
