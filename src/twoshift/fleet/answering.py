"""A replica's side of live requests: frames in, the model's answers out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, assert_never

from twoshift.engine import Engine, RowResult
from twoshift.engine.waiting import LiveRow
from twoshift.error_codec import encode_error
from twoshift.errors import Late, TryLater, TwoshiftError
from twoshift.fleet.frames import Frames, framed
from twoshift.fleet.sequence_replies import SequenceReplies
from twoshift.fleet.wire import (
    Ask,
    Done,
    Forget,
    FromReplica,
    Generate,
    Heartbeat,
    Hello,
    LlmBeat,
    Refused,
    Results,
    Started,
    to_replica,
)
from twoshift.policy.cost import CallCost
from twoshift.ports import Prepared
from twoshift.serve.completions import Completions, Pending
from twoshift.serve.host import Host, Visit
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import Answer, ServedModel

__all__ = ["Answering"]

_logger = logging.getLogger("twoshift.fleet")
_BEAT_S = 0.5
_DERIVED_S = 5.0


class _Outgoing:
    """Whole frames, from any thread: the engine's says what it launches before it does, on a call that may be its end.

    Waits where the front does not read; it always does, or is gone.
    """

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._writable = select.poll()
        self._writable.register(made, select.POLLOUT)
        self._lock = threading.Lock()

    def send(self, data: bytes) -> None:
        with self._lock:
            left = memoryview(data)
            while left:
                try:
                    left = left[self._socket.send(left) :]
                except BlockingIOError:
                    self._writable.poll()


class _AskVisit(Visit):
    """A visit that knows whose it is."""

    __slots__ = ("request", "rows")

    def __init__(self, host: Host, size: int, request: int) -> None:
        super().__init__(host, size)
        self.request = request  # as its front numbers it
        self.rows: Prepared | None = None  # once they are with the engine


class _Watched(Completions):
    """Rows are known by their request before the engine can launch them."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.requests: dict[int, int] = {}  # id of prepared rows -> their request

    def submit(self, engine: Engine, rows: Prepared, request: LiveRequest) -> Pending:
        visit = request.visit
        assert isinstance(visit, _AskVisit)  # noqa: S101 - every request here has one
        visit.rows, self.requests[id(rows)] = rows, visit.request
        return super().submit(engine, rows, request)

    def over(self, visit: _AskVisit) -> None:
        self.requests.pop(id(visit.rows), None)


class Answering(asyncio.Protocol):
    """One model, one front. Where the front listens no more, nobody waits: the control line says what then."""

    def __init__(self, model: ServedModel | ServedLlm, live: socket.socket, same_clock: bool = True) -> None:
        self._model, self._loop, self._same_clock = model, asyncio.get_running_loop(), same_clock
        self.offered_rows = self.refused_rows = 0
        self.is_lost = False
        self._host = Host()
        self._completions = _Watched(self._host)
        model.start(self._completions)
        self._outgoing = _Outgoing(live)
        self._frames = Frames()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._replies: list[bytes] = []  # of this turn of the loop
        self._beats: asyncio.Task[None] | None = None
        self._sequences: SequenceReplies | None = None
        if isinstance(model, ServedLlm):
            self._sequences = SequenceReplies(model, lambda message: self._reply(framed(message)))
        else:
            model.engine.on_launch = self._launching

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            message = to_replica(frame)
            match message:
                case Ask():
                    self._admit(message, len(frame))
                case Generate():
                    self._generate(message)
                case Forget(request):
                    if (task := self._tasks.pop(request, None)) is not None:
                        task.cancel()
                case Hello():
                    self._beats = self._loop.create_task(self._beat())
                case _:
                    assert_never(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._beats is not None:
            self._beats.cancel()
        for task in self._tasks.values():
            task.cancel()

    def _admit(self, ask: Ask, size: int) -> None:
        """What would be too late is refused before its rows are prepared."""
        now_s = time.monotonic()
        base_s = 0.0 if self._same_clock else now_s
        deadline_s, arrived_s = ask.deadline_s + base_s, ask.arrived_s + base_s
        left_s = deadline_s - ask.reserve_s - now_s
        self.offered_rows += len(ask.rows)
        wait_s = self._host.wait_s(size, left_s, now_s, self._model)
        if wait_s is None:
            visit = _AskVisit(self._host, size, ask.id)
            rows: Sequence[Any] = [tuple(row) for row in ask.rows] if ask.pairs else ask.rows
            request = LiveRequest(rows, deadline_s, arrived_s, ask.tenant, visit)
            self._tasks[ask.id] = self._loop.create_task(self._answer(ask, request, visit))
        else:
            self.refused_rows += len(ask.rows)
            self._reply(framed(Refused(ask.id, encode_error(TryLater("the queue is too long", min(wait_s, left_s))))))

    async def _answer(self, ask: Ask, request: LiveRequest, visit: _AskVisit) -> None:
        visit.begin()
        visit.reserve(ask.deadline_s - ask.arrived_s)
        visit.reserve_s += ask.reserve_s
        try:
            answer = await self._model.answer(request)
            if not self._same_clock:
                answer.stages.finish = 0.0  # it ends on another clock
            reply = framed(_done_of(ask.id, answer))
        except asyncio.CancelledError:
            return
        except BaseException as error:  # a library's panic is no Exception, and its request wants a reply, too
            if not isinstance(error, TwoshiftError):
                _logger.exception("a request has failed")
            if isinstance(error, Late) and error.begun:
                self._host.policy.was_late(ask.deadline_s - ask.arrived_s, time.monotonic())
            self.refused_rows += len(ask.rows) if isinstance(error, TryLater) else 0
            reply = framed(Refused(ask.id, encode_error(error)))
        finally:
            self._completions.over(visit)
            visit.end()
            self._tasks.pop(ask.id, None)
        self._reply(reply)

    def _generate(self, asked: Generate) -> None:
        assert self._sequences is not None  # noqa: S101 - only a language model is asked
        task = self._tasks[asked.id] = self._loop.create_task(self._sequences.answer(asked))
        task.add_done_callback(lambda _: self._tasks.pop(asked.id, None))

    def _reply(self, reply: bytes) -> None:
        if not self._replies:
            self._loop.call_soon(self._flush)
        self._replies.append(reply)

    def _flush(self) -> None:
        replies, self._replies = self._replies, []
        self._send(b"".join(replies))

    def _launching(self, rows: Sequence[LiveRow]) -> None:  # in the engine's thread
        ids = {self._completions.requests.get(id(row.rows)) for row in rows}
        self._send(framed(Started([each for each in ids if each is not None])))

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            self._outgoing.send(data)

    async def _beat(self) -> None:
        cost: CallCost | None = None
        derived_s = time.monotonic() + _DERIVED_S
        while True:
            model, now_s = self._model, time.monotonic()
            before, cost = cost, model.engine.cost()
            derived = None
            if now_s >= derived_s:
                told = model.derived_now().with_host(self._host.request_s, model.rows_per_request)
                derived, derived_s = told.to_dict(), now_s + _DERIVED_S
            changed = None if cost is before else cost.to_dict()
            reserve_s = self._host.policy.reserve_s(model.derived.slo_s, now_s)
            llm = None if self._sequences is None else self._sequences.beat()
            self._tell(_beat_of(model, changed, derived, self._host.request_s, reserve_s, llm))
            await asyncio.sleep(_BEAT_S)

    def _tell(self, message: FromReplica) -> None:
        self._send(framed(message))


def _beat_of(
    model: ServedModel | ServedLlm,
    cost: dict[str, Any] | None,
    derived: dict[str, Any] | None,
    host_s: float = 0.0,
    reserve_s: float = 0.0,
    llm: LlmBeat | None = None,
) -> Heartbeat:
    """How it is; the curve and what follows from it where they are to be told."""
    stats, waiting, health = model.stats(), model.waiting(), model.health()
    return Heartbeat(stats, waiting, health.running_s, health.reason, cost, derived, host_s, reserve_s, llm)


def _done_of(request: int, answer: Answer) -> Done:
    stages = answer.stages
    passed = (
        stages.admit, stages.lookup, stages.prepare, stages.queue, stages.forward, stages.finish, stages.call_rows,
    )  # fmt: skip
    return Done(request, _results(answer.rows), answer.tokens, answer.truncated, passed)


def _results(rows: Sequence[RowResult]) -> list[Results]:
    """Rows that lie side by side in one call go together, without a copy."""
    found, start = list[Results](), 0
    for at in range(1, len(rows) + 1):
        first = rows[start]
        if at < len(rows) and rows[at].columns is first.columns and rows[at].index == first.index + at - start:
            continue
        stop = first.index + at - start
        columns = {name: values[first.index : stop] for name, values in first.columns.items()}
        found.append(Results(columns, at - start, first.forward_s, first.call_rows))
        start = at
    return found
