"""One front that asks a replica: its frames in, the model's answers out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Sequence
from typing import Any, assert_never

from twoshift.error_codec import encode_error
from twoshift.errors import TryLater, TwoshiftError
from twoshift.fleet.answering import Answering
from twoshift.fleet.frames import Frames, attach, framed
from twoshift.fleet.launch_board import LaunchBoard
from twoshift.fleet.outgoing import Outgoing
from twoshift.fleet.prepared_requests import PreparedRequests, result_parts
from twoshift.fleet.sequence_replies import SequenceReplies
from twoshift.fleet.wire import Ask, AskPrepared, Done, Forget, Generate, Hello, Refused, Started, to_replica
from twoshift.policy.cost import CallCost
from twoshift.serve.host import Visit
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import Answer

__all__ = ["FrontConnection", "connect_front"]

_logger = logging.getLogger("twoshift.fleet")
_BEAT_S = 0.5
_DERIVED_S = 5.0


class _AskVisit(Visit):
    """A visit that knows whose it is."""

    __slots__ = ("connection", "number")

    def __init__(self, connection: FrontConnection, size: int, number: int) -> None:
        super().__init__(connection.answering.host, size)
        self.connection, self.number = connection, number


class FrontConnection(asyncio.Protocol):
    """Where it ends, what this front has asked ends with it, and others go on."""

    def __init__(self, answering: Answering, live: socket.socket) -> None:
        self.answering, self._loop = answering, asyncio.get_running_loop()
        self.is_lost = False
        self._outgoing = Outgoing(live)
        self._launches: LaunchBoard | None = None
        self._frames = Frames()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._replies: list[bytes] = []  # of this turn of the loop
        self._beats: asyncio.Task[None] | None = None
        self._sequences: SequenceReplies | None = None
        self._prepared: PreparedRequests | None = None
        model = answering.model
        if isinstance(model, ServedLlm):
            self._sequences = SequenceReplies(model, lambda message: self._reply(framed(message)))
        else:
            self._prepared = PreparedRequests(answering, model, self)

    def data_received(self, data: bytes) -> None:
        self.answering.host.woke()
        self.answering.send_replies()
        prepared = list[tuple[AskPrepared, int]]()
        for frame in self._frames.feed(data):
            message = to_replica(frame)
            match message:
                case AskPrepared():
                    prepared.append((message, len(frame)))
                case Ask():
                    self._admit(message, len(frame))
                case Generate():
                    self._generate(message)
                case Forget(request):
                    self._forget(request)
                case Hello(launches_path):
                    self._hello(launches_path)
                case _:
                    assert_never(message)
        if prepared:
            assert self._prepared is not None  # noqa: S101 - no language model has prepared rows
            self._prepared.ask(prepared)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._beats is not None:
            self._beats.cancel()
        for task in self._tasks.values():
            task.cancel()
        if self._prepared is not None:
            self._prepared.forget_all()
        self._outgoing.close()

    def send(self, data: bytes) -> None:
        """Whole frames, from any thread; lost where nobody listens any more."""
        self._outgoing.send(data)

    def launching(self, requests: list[int], now_s: float) -> None:
        """The front learns of it even if the call is this process's end."""
        if self._launches is None:
            self.send(framed(Started(requests)))
        else:
            self._launches.write(requests, now_s)

    def _hello(self, launches_path: str) -> None:
        if launches_path:
            with contextlib.suppress(OSError):  # the front is gone
                self._launches = LaunchBoard(launches_path)
        self._beats = self._beats or self._loop.create_task(self._beat())

    def _forget(self, request: int) -> None:
        if self._prepared is not None and self._prepared.forget(request):
            return
        if (task := self._tasks.pop(request, None)) is not None:
            task.cancel()

    def _admit(self, ask: Ask, size: int) -> None:
        """What would be too late is refused before its rows are prepared."""
        answering, now_s = self.answering, time.monotonic()
        base_s = 0.0 if answering.same_clock else now_s
        deadline_s, arrived_s = ask.deadline_s + base_s, ask.arrived_s + base_s
        left_s = deadline_s - ask.reserve_s - now_s
        answering.offered_rows += len(ask.rows)
        wait_s = answering.host.wait_s(size, left_s, now_s, answering.model)
        if wait_s is None:
            visit = _AskVisit(self, size, ask.id)
            rows: Sequence[Any] = [tuple(row) for row in ask.rows] if ask.pairs else ask.rows
            request = LiveRequest(rows, deadline_s, arrived_s, ask.tenant, visit)
            task = self._tasks[ask.id] = self._loop.create_task(self._answer(ask, request, visit))
            task.add_done_callback(lambda _: self._over(visit))
            answering.changed()
        else:
            answering.refused_rows += len(ask.rows)
            self._reply(
                framed(
                    Refused(
                        [ask.id],
                        encode_error(TryLater("the queue is too long to answer by the deadline", min(wait_s, left_s))),
                    )
                )
            )

    async def _answer(self, ask: Ask, request: LiveRequest, visit: _AskVisit) -> None:
        had_s = ask.deadline_s - ask.arrived_s
        visit.begin()
        visit.reserve(had_s, ask.reserve_s)
        try:
            answer = await self.answering.model.answer(request)
            if not self.answering.same_clock:
                answer.stages.finish = 0.0  # it ends on another clock
            reply = framed(_done_of(ask.id, answer))
        except asyncio.CancelledError:
            return
        except BaseException as error:  # a library's panic is no Exception, and its request wants a reply, too
            if not isinstance(error, TwoshiftError):
                _logger.exception("a request has failed on a replica")
            self.answering.refused(len(ask.rows), had_s, error)
            reply = framed(Refused([ask.id], encode_error(error)))
        finally:
            visit.end()
            self._tasks.pop(ask.id, None)
        self._reply(reply)

    def _over(self, visit: _AskVisit) -> None:
        """Its task has ended, or was cancelled before it ran."""
        visit.end()
        self.answering.changed()

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
        self.send(b"".join(replies))

    async def _beat(self) -> None:
        cost: CallCost | None = None
        derived_s = time.monotonic() + _DERIVED_S
        while True:
            model, host = self.answering.model, self.answering.host
            before, cost = cost, model.engine.cost()
            derived = None
            if (now_s := time.monotonic()) >= derived_s:
                told = model.derived_now().with_host(host.request_s, model.rows_per_request)
                derived, derived_s = told.to_dict(), now_s + _DERIVED_S
            self.send(framed(self.answering.beat(None if cost is before else cost, derived)))
            await asyncio.sleep(_BEAT_S)


async def connect_front(answering: Answering, live: socket.socket) -> FrontConnection:
    """One more front asks over this socket, which is closed with its connection."""
    incoming = live.dup()  # the loop reads from this one; what is sent goes past it
    connection = FrontConnection(answering, live)
    await attach(connection, incoming)
    return connection


def _done_of(request: int, answer: Answer) -> Done:
    stages = answer.stages
    passed = (
        stages.admit, stages.lookup, stages.prepare, stages.queue, stages.forward, stages.finish, stages.call_rows,
    )  # fmt: skip
    return Done(request, result_parts(answer.rows), answer.tokens, answer.truncated, passed)
