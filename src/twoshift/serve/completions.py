"""Rows to the engines' threads and results back to the loop of the server, many with one wake-up each way."""

from __future__ import annotations

import asyncio
import copy
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from twoshift.engine import RowResult
from twoshift.engine.live_intake import LiveIntake
from twoshift.engine.waiting import LiveRows
from twoshift.errors import Late
from twoshift.ports import Prepared
from twoshift.serve.deadlines import Deadlines
from twoshift.serve.host import Host, Visit
from twoshift.serve.live_request import LiveRequest

__all__ = ["Awaited", "Completions", "Pending"]

_GATHER_S = 0.001  # while requests come in with every turn of the loop; a single one waits for one turn


class Pending(ABC):
    """The rows of one request, with an engine; it waits for its first row itself, and `_Row` for each other."""

    __slots__ = ("due", "home", "intake", "is_over", "keys", "left", "results", "settled_s")

    def __init__(self, home: Completions, intake: LiveIntake, rows: int) -> None:
        self.home, self.intake, self.left = home, intake, rows
        self.due = 0  # the tick of its deadline
        self.settled_s = 0.0  # when its last result was there
        self.is_over = False  # it is answered, or nobody waits for it
        self.results: list[RowResult | Exception | None] = [None] * rows
        self.keys: Sequence[int] = ()

    def sinks(self) -> list[Pending | _Row]:
        """What waits for each of its rows."""
        count = len(self.results)
        return [self] if count == 1 else [self, *(_Row(self, place) for place in range(1, count))]

    def settle(self, result: RowResult | Exception) -> None:
        self.settle_row(0, result)

    def settle_row(self, place: int, result: RowResult | Exception) -> None:  # in an engine's thread
        if self.results[place] is None:
            self.results[place] = result
            self.home.settled(self)

    def cancel(self) -> bool:
        """What is not on the device yet never will be; whether that is all of it."""
        return self.intake.forget(self.keys) == len(self.keys)

    @property
    @abstractmethod
    def asked(self) -> object:
        """Whose rows they are, for who watches launches."""

    @abstractmethod
    def end(self, late: Late | None) -> None:
        """All results are there, or its deadline has passed; on the loop, once."""


class Awaited(Pending):
    """One that a task waits for."""

    __slots__ = ("done", "visit")

    def __init__(self, home: Completions, intake: LiveIntake, rows: int, visit: Visit | None) -> None:
        super().__init__(home, intake, rows)
        self.visit = visit
        self.done: asyncio.Future[None] = home.new_future()

    @property
    def asked(self) -> object:
        return self.visit

    def refuse(self, why: Exception) -> None:
        """It is not taken; many may not be for the very same reason."""
        self.is_over = True
        if not self.done.done():
            self.done.set_exception(copy.copy(why))

    def end(self, late: Late | None) -> None:
        if self.done.done():  # its task was cancelled in this turn
            return
        if late is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(late)


class _Row:
    """A live row's place in its request; lighter than a future, of which a server makes thousands a second."""

    __slots__ = ("_pending", "_place")

    def __init__(self, pending: Pending, place: int) -> None:
        self._pending, self._place = pending, place

    @property
    def asked(self) -> object:
        """As the first row says it."""
        return self._pending.asked

    def settle(self, result: RowResult | Exception) -> None:
        self._pending.settle_row(self._place, result)


class Completions:
    """For however many engines; made on the loop."""

    def __init__(self, host: Host | None = None) -> None:
        self._loop, self._host = asyncio.get_running_loop(), host
        self.new_future = self._loop.create_future
        self._coming: list[tuple[Awaited, LiveRows]] = []  # in this turn of the loop
        self._settled: deque[Pending] = deque()
        self._woken, self._woken_s = False, 0.0
        self._waiting: set[LiveIntake] = set()  # that have rows to look at
        self._submitted = self._seen = 0  # requests; up to the last turn of the loop
        self._wake_by_s, self._worked_s = 0.0, 0.0  # and when the loop had worked on one by then
        self._deadlines = Deadlines(_give_up)  # of requests that are not answered

    def submit(self, intake: LiveIntake, rows: Prepared, request: LiveRequest) -> Awaited:
        """For a task that waits until `done`, which raises where they are not taken.

        They are submitted with all that come in this turn of the loop: a look at the plan for each would cost more.
        """
        pending = Awaited(self, intake, len(rows.lengths), request.visit)
        if not self._coming:
            self._loop.call_soon(self._submit_coming)
        deadline_s, reserve_s = request.deadline_s, request.reserve_s
        asked = LiveRows(rows, 0, pending.sinks(), deadline_s, request.tenant, request.arrived_s, reserve_s)
        self._coming.append((pending, asked))
        return pending

    def _submit_coming(self) -> None:
        coming, self._coming = self._coming, []
        by_intake = dict[LiveIntake, list[tuple[Awaited, LiveRows]]]()
        for each in coming:
            if not each[0].is_over:
                by_intake.setdefault(each[0].intake, []).append(each)
        for intake, requests in by_intake.items():
            for (pending, _), error in zip(requests, self.submit_together(intake, requests), strict=True):
                if pending.visit is not None:
                    pending.visit.submitted()
                if error is not None:
                    pending.refuse(error)
        self._is_busy()  # that was the first look

    def submit_together(
        self, intake: LiveIntake, requests: Sequence[tuple[Pending, LiveRows]]
    ) -> list[Exception | None]:
        """As `LiveIntake.submit_together`; why one is not taken, or None. The others have until their deadline.

        The engine looks once every request that is here by now has been submitted.
        """
        try:
            taken = intake.submit_together([asked for _, asked in requests])
        except Exception as error:  # the engine is closed
            return [error] * len(requests)
        found = list[Exception | None]()
        for (pending, asked), keys in zip(requests, taken, strict=True):
            if isinstance(keys, Exception):
                found.append(keys)
                continue
            pending.keys = keys
            pending.due = self._deadlines.add(pending, asked.deadline_s)
            found.append(None)
        self._gather(intake, len(requests))
        return found

    def settled(self, pending: Pending) -> None:
        """A row has its result; in an engine's thread."""
        self._settled.append(pending)
        if not self._woken:
            self._woken, self._woken_s = True, time.monotonic()
            self._loop.call_soon_threadsafe(self.deliver)

    def forget(self, pending: Pending) -> None:
        """It is answered, or nobody waits for it."""
        pending.is_over = True
        self._deadlines.forget(pending, pending.due)

    def _gather(self, intake: LiveIntake, requests: int) -> None:
        hold_s = 0.0 if self._host is None else self._host.policy.gather_s
        if not intake.resting and hold_s <= _GATHER_S:
            return  # it will look by itself
        self._submitted += requests
        if not self._waiting:
            self._wake_by_s = time.monotonic() + max(_GATHER_S, hold_s)
            self._loop.call_soon(self._wake)
        if hold_s > _GATHER_S:
            intake.gather_until_s = self._wake_by_s
        self._waiting.add(intake)

    def _wake(self) -> None:
        if (self._is_busy() or self._coming) and time.monotonic() < self._wake_by_s:
            self._loop.call_soon(self._wake)  # after another look at the connections
            return
        for intake in self._waiting:
            intake.wake()
        self._waiting.clear()

    def _is_busy(self) -> bool:
        """Whether the loop has had requests to submit since the last look; or any work, where a device waits for it."""
        is_held = any(intake.gather_until_s == self._wake_by_s for intake in self._waiting)
        worked_s = self._host.policy.worked_s if self._host is not None and is_held else 0.0
        seen, self._seen, self._worked_s = (self._seen, self._worked_s), self._submitted, worked_s
        return seen != (self._submitted, worked_s)

    def deliver(self) -> None:
        """Results that are there by now go to who waits for them; on the loop."""
        woken_s, self._woken = self._woken_s, False  # before the look: who comes after it wakes us again
        if not self._settled:
            return
        if self._host is not None:
            self._host.woke()
        settled = self._settled
        while settled:
            pending = settled.popleft()
            pending.left -= 1
            if not pending.left and not pending.is_over:
                self.forget(pending)
                pending.settled_s = woken_s
                pending.end(None)


def _give_up(pending: Pending) -> None:
    if not pending.is_over:
        pending.is_over = True
        pending.end(Late("the request was not answered by its deadline", begun=not pending.cancel()))
