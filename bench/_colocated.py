"""Ways to run live queries and a batch job on one device: ours, and those that people use."""

from __future__ import annotations

import itertools
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol

from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Prepared, Runtime

__all__ = ["Apart", "OneEngine", "Strict", "Way"]

_AHEAD = 3  # blocks that wait in the engine, so that the device never does
_MOST_LIVE_ROWS = 64


class Way(Protocol):
    """One of them, running."""

    def ask(self, rows: Prepared) -> Future[Any]:
        """A live query."""
        ...

    def background(self, on: bool) -> None:
        """Start or stop the job."""
        ...

    def rows_done(self) -> int:
        """Of the job."""
        ...

    def close(self) -> None: ...


class OneEngine:
    """Twoshift: both lanes in one engine; calls with background rows stay within a budget, live rows go first."""

    def __init__(self, runtime: Runtime, cost: CallCost, slo_s: float, blocks: Sequence[Prepared]) -> None:
        self._engine = Engine(runtime, cost, LaneLimits(slo_s=slo_s))
        self._blocks = itertools.cycle(blocks)
        self._on, self._closed, self._before = threading.Event(), threading.Event(), 0
        self._waiting: list[Future[Any]] = []
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def ask(self, rows: Prepared) -> Future[Any]:
        """A live query; its deadline is generous, so that what is slow is seen and not refused."""
        return self._engine.submit(rows, self._engine.now_s() + 10)[0]

    def background(self, on: bool) -> None:
        """Start or stop the job."""
        if on:
            self._on.set()
        else:
            self._on.clear()
            for future in self._waiting:
                future.cancel()

    def rows_done(self) -> int:
        """Of the job."""
        return self._engine.stats().lanes["batch"].rows  # type: ignore[index]

    def close(self) -> None:
        """The runtime stays open."""
        self.background(False)
        self._closed.set()
        self._on.set()
        self._thread.join()
        self._engine.drain()

    def _feed(self) -> None:
        while True:
            self._on.wait()
            if self._closed.is_set():
                return
            while len(self._waiting) < _AHEAD and self._on.is_set():
                self._waiting.append(self._engine.submit_block(next(self._blocks)))
            wait(self._waiting, return_when=FIRST_COMPLETED)
            self._waiting = [future for future in self._waiting if not future.done()]


class Strict:
    """One queue a lane: live calls first, a background call where there are none; nobody rides.

    With `window_s` a live call waits so long for company, as servers with dynamic batching do.
    """

    def __init__(self, runtime: Runtime, calls: Sequence[Prepared], window_s: float = 0.0) -> None:
        self._runtime, self._calls, self._window_s = runtime, itertools.cycle(calls), window_s
        self._live: queue.SimpleQueue[tuple[Prepared, Future[Any]]] = queue.SimpleQueue()
        self._on = self._closed = False
        self._done = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, rows: Prepared) -> Future[Any]:
        """A live query."""
        future: Future[Any] = Future()
        self._live.put((rows, future))
        return future

    def background(self, on: bool) -> None:
        """Start or stop the job."""
        self._on = on

    def rows_done(self) -> int:
        """Of the job."""
        return self._done

    def close(self) -> None:
        """The runtime stays open."""
        self._closed = True
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            if waiting := self._taken():
                columns = self._runtime.launch([rows for rows, _ in waiting], live=True).wait()
                for at, (_, future) in enumerate(waiting):
                    future.set_result({name: values[at] for name, values in columns.items()})
            elif self._on:
                call = next(self._calls)
                self._runtime.launch([call]).wait()
                self._done += len(call.lengths)

    def _taken(self) -> list[tuple[Prepared, Future[Any]]]:
        """What waits, and what comes within the window."""
        try:
            waiting = [self._live.get(timeout=0.0 if self._on else 0.01)]
        except queue.Empty:
            return []
        until_s = time.perf_counter() + self._window_s
        while len(waiting) < _MOST_LIVE_ROWS:
            try:
                waiting.append(self._live.get(timeout=max(0.0, until_s - time.perf_counter())))
            except queue.Empty:
                break
        return waiting


class Apart:
    """Two processes that know nothing of each other: the job has a model of its own on the same device."""

    def __init__(self, live: Way, work: Callable[..., None], *given: Any) -> None:
        self._live, self._work, self._given = live, work, given
        context = multiprocessing.get_context("spawn")
        self._count, self._on = context.Value("l", 0), context.Event()
        self._process = context.Process(target=work, args=(self._count, self._on, *given), daemon=True)
        self._process.start()
        while self._count.value == 0:  # type: ignore[attr-defined] - it says 1 when it is ready
            assert self._process.is_alive()
            time.sleep(0.1)

    def ask(self, rows: Prepared) -> Future[Any]:
        """A live query."""
        return self._live.ask(rows)

    def background(self, on: bool) -> None:
        """Start or stop the job."""
        (self._on.set if on else self._on.clear)()

    def rows_done(self) -> int:
        """Of the job."""
        return self._count.value  # type: ignore[attr-defined]

    def close(self) -> None:
        """Both."""
        self._process.kill()
        self._process.join()
        self._live.close()
