"""Rows to the engines' threads and results back to the loop of the server, many with one wake-up each way."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from twoshift.engine import Engine, RowResult
from twoshift.errors import Late
from twoshift.ports import Prepared
from twoshift.serve.deadlines import Deadlines
from twoshift.serve.host import Host
from twoshift.serve.live_request import LiveRequest

__all__ = ["Completions", "Pending"]

_GATHER_S = 0.001  # while requests come in with every turn of the loop; a single one waits for one turn


class Pending:
    """The rows of one request, with an engine; it waits for its first row itself, and `_Row` for each other."""

    __slots__ = ("_engine", "_home", "done", "due", "keys", "left", "results", "settled_s")

    def __init__(self, home: Completions, engine: Engine, done: asyncio.Future[None], rows: int) -> None:
        self._home, self._engine, self.done, self.left = home, engine, done, rows
        self.due = 0  # the tick of its deadline
        self.settled_s = 0.0  # when its last result was there
        self.results: list[RowResult | Exception | None] = [None] * rows
        self.keys: list[int] = []

    def settle(self, result: RowResult | Exception) -> None:
        self.settle_row(0, result)

    def settle_row(self, place: int, result: RowResult | Exception) -> None:  # in an engine's thread
        if self.results[place] is None:
            self.results[place] = result
            self._home.settled(self)

    def cancel(self) -> bool:
        """What is not on the device yet never will be; whether that is all of it."""
        return self._engine.forget(self.keys) == len(self.keys)


class _Row:
    """A live row's place in its request; lighter than a future, of which a server makes thousands a second."""

    __slots__ = ("_pending", "_place")

    def __init__(self, pending: Pending, place: int) -> None:
        self._pending, self._place = pending, place

    def settle(self, result: RowResult | Exception) -> None:
        self._pending.settle_row(self._place, result)


class Completions:
    """For however many engines; made on the loop."""

    def __init__(self, host: Host | None = None) -> None:
        self._loop, self._host = asyncio.get_running_loop(), host
        self._settled: deque[Pending] = deque()
        self._woken, self._woken_s = False, 0.0
        self._waiting: set[Engine] = set()  # that have rows to look at
        self._submitted = self._seen = 0  # requests; up to the last turn of the loop
        self._wake_by_s = 0.0
        self._deadlines = Deadlines(_give_up)  # of requests that are not answered

    def submit(self, engine: Engine, rows: Prepared, request: LiveRequest) -> Pending:
        """As `Engine.submit`; the engine looks once every request that is here by now has been submitted."""
        deadline_s, since_s, reserve_s = request.deadline_s, request.arrived_s, request.reserve_s
        count = len(rows.lengths)
        pending = Pending(self, engine, self._loop.create_future(), count)
        sinks = [pending] if count == 1 else [pending, *(_Row(pending, k) for k in range(1, count))]
        pending.keys = engine.submit_to(sinks, rows, deadline_s - reserve_s, request.tenant, since_s - reserve_s)
        pending.due = self._deadlines.add(pending, deadline_s)
        if not engine.is_resting:  # it will look by itself
            return pending
        self._submitted += 1
        if not self._waiting:
            self._wake_by_s = time.monotonic() + _GATHER_S
            self._loop.call_soon(self._wake)
        self._waiting.add(engine)
        return pending

    def settled(self, pending: Pending) -> None:
        """A row has its result; in an engine's thread."""
        self._settled.append(pending)
        if not self._woken:
            self._woken, self._woken_s = True, time.monotonic()
            self._loop.call_soon_threadsafe(self._deliver)

    def _wake(self) -> None:
        if self._submitted != self._seen and time.monotonic() < self._wake_by_s:
            self._seen = self._submitted
            self._loop.call_soon(self._wake)  # after another look at the connections
            return
        for engine in self._waiting:
            engine.wake()
        self._waiting.clear()

    def _deliver(self) -> None:
        woken_s, self._woken = self._woken_s, False  # before the look: who comes after it wakes us again
        if self._host is not None:
            self._host.woke()
        while self._settled:
            pending = self._settled.popleft()
            pending.left -= 1
            if not pending.left and not pending.done.done():
                self.forget(pending)
                pending.settled_s = woken_s
                pending.done.set_result(None)

    def forget(self, pending: Pending) -> None:
        """It is answered, or nobody waits for it."""
        self._deadlines.forget(pending, pending.due)


def _give_up(pending: Pending) -> None:
    if not pending.done.done():
        begun = not pending.cancel()
        pending.done.set_exception(Late("the request was not answered by its deadline", begun))
