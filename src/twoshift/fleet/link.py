"""A front's side of live requests: one replica, the requests that it has, and how it is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, assert_never

from twoshift.engine import RowResult
from twoshift.error_codec import decode_error
from twoshift.errors import Late
from twoshift.fleet.frames import Frames, attach, framed
from twoshift.fleet.front_rows import FrontRows
from twoshift.fleet.launch_board import LaunchReading
from twoshift.fleet.remote_sequences import RemoteSequences
from twoshift.fleet.wire import (
    Answered,
    Begun,
    Done,
    Forget,
    Heartbeat,
    Hello,
    PreparedAsk,
    Refused,
    Started,
    Tokens,
    asking,
    asking_prepared,
    from_replica,
)
from twoshift.serve.deadlines import Deadlines
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import Answer
from twoshift.serve.stages import Stages

__all__ = ["Link", "ReplicaLost"]

_TOGETHER = 256  # requests of one row, at most, in a frame
_REPLY_S = 0.02  # after a deadline, in which the replica's own word for it arrives


class ReplicaLost(Exception):
    """The replica is gone, and the request with it."""

    def __init__(self, started: bool, killed: asyncio.Future[bool] | None = None) -> None:
        self.started, self._killed = started, killed
        super().__init__("the replica has ended")

    async def was_killed(self, until_s: float) -> bool:
        """Whether something outside ended it, so that its requests did not; False where that is not known by then."""
        if self._killed is None:
            return False
        try:
            return await asyncio.wait_for(asyncio.shield(self._killed), max(0.0, until_s - time.monotonic()))
        except TimeoutError:
            return False


Reply = Done | tuple[Answered, int]  # and which of its rows


class _Asked:
    """A request that has no reply yet."""

    __slots__ = ("reply", "started")

    def __init__(self, reply: asyncio.Future[Reply]) -> None:
        self.reply = reply
        self.started = False


class Link(asyncio.Protocol):
    """On the server's loop."""

    def __init__(
        self,
        heard: Callable[[Heartbeat], None],
        started: Callable[[Sequence[int], float], None],
        lost: Callable[[], None],
        same_clock: bool = True,
        launches_path: str = "",
    ) -> None:
        """`launches_path`: where a replica of this machine notes what it launches; else it says so."""
        self._loop = asyncio.get_running_loop()
        self._heard, self._started, self._lost, self._same_clock = heard, started, lost, same_clock
        self._frames = Frames()
        self._asked: dict[int, _Asked] = {}
        self._sequences: dict[int, RemoteSequences] = {}
        self._deadlines = Deadlines(self._give_up)
        self._transport: Any = None
        self.is_lost = False
        self._launches = _launches_at(launches_path)
        self._outgoing: list[bytes] = [framed(Hello(launches_path if self._launches else ""))]  # of this turn
        self._single: dict[Hashable, list[tuple[PreparedAsk, FrontRows]]] = {}  # of this turn, by their signatures
        self.heard_s = time.monotonic()  # of it, the last time
        self._killed: asyncio.Future[bool] = self._loop.create_future()  # from outside, once its end is known

    async def connect(self, live: Awaitable[socket.socket]) -> None:
        """What is asked before goes out then; the replica is told that it is listened to."""
        try:
            await attach(self, await live)
        except OSError as error:
            self.connection_lost(error)

    @property
    def outstanding(self) -> int:
        """Requests that have no reply yet."""
        return len(self._asked) + len(self._sequences)

    async def ask(self, number: int, request: LiveRequest) -> Answer:
        """The answer; raises what the replica raised, ReplicaLost, and Late where it says nothing in time."""
        frame = asking(number, request, self._base_s())
        done = await self._replied(number, request, lambda: self._write(frame))
        assert isinstance(done, Done)  # noqa: S101 - the other one is for prepared rows
        answer = _answer_of(done)
        if not self._same_clock:
            answer.stages.finish -= time.monotonic()  # until the reply is made
        return answer

    async def ask_prepared(self, number: int, given: FrontRows, request: LiveRequest) -> Answer:
        """The same with rows that were prepared here; those of one row go together with others of this turn."""
        base_s, count = self._base_s(), given.size.rows
        deadline_s, arrived_s = request.deadline_s - base_s, request.arrived_s - base_s
        ask = PreparedAsk(number, count, deadline_s, arrived_s, request.tenant, request.reserve_s)
        if count == 1:
            reply = await self._replied(number, request, lambda: self._gather(ask, given))
        else:
            frame = asking_prepared([ask], [given.rows], given.preparer)
            reply = await self._replied(number, request, lambda: self._write(frame))
        return _answer_to(given, reply, None if self._same_clock else self.heard_s)

    def _base_s(self) -> float:
        return 0.0 if self._same_clock else time.monotonic()

    async def _replied(self, number: int, request: LiveRequest, send: Callable[[], None]) -> Reply:
        visit = request.visit
        if self.is_lost:
            raise ReplicaLost(started=False)
        asked = self._asked[number] = _Asked(self._loop.create_future())
        due = self._deadlines.add(number, request.deadline_s + _REPLY_S)
        send()
        if visit is not None:
            visit.submitted()
        try:
            done = await asked.reply
        except asyncio.CancelledError:
            self._write(framed(Forget(number)))
            raise
        finally:
            self._asked.pop(number, None)
            self._deadlines.forget(number, due)
        if visit is not None:
            visit.answered(self.heard_s)
        return done

    def generate(self, number: int, frame: bytes, sequences: RemoteSequences) -> None:
        """Begin them; raises ReplicaLost."""
        if self.is_lost:
            raise ReplicaLost(started=False)
        self._sequences[number] = sequences
        self._write(frame)

    def end_sequences(self, number: int, at_replica: bool) -> None:
        """Nothing more is wanted of them; where the replica still has them, it is told."""
        if self._sequences.pop(number, None) is not None and at_replica:
            self._write(framed(Forget(number)))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.heard_s = time.monotonic()
        for frame in self._frames.feed(data):
            message = from_replica(frame)
            match message:
                case Started(ids):
                    self._have_started(ids, self.heard_s)
                case Done(request):
                    if (asked := self._asked.get(request)) and not asked.reply.done():
                        asked.reply.set_result(message)
                case Answered(ids):
                    for at, request in enumerate(ids):
                        if (asked := self._asked.get(request)) and not asked.reply.done():
                            asked.reply.set_result((message, at))
                case Tokens(request, place, delta):
                    if (sequences := self._sequences.get(request)) is not None:
                        sequences.put(place, delta)
                case Begun(request):
                    if (sequences := self._sequences.get(request)) is not None:
                        sequences.begun(message)
                case Refused(ids, error):
                    for request in ids:
                        self._refused(request, decode_error(error))
                case Heartbeat():
                    self._heard(message)
                case _:
                    assert_never(message)

    def look(self) -> None:
        """Learn what was launched since the last look."""
        if self._launches is not None:
            requests, began_s = self._launches.launched()
            if requests:
                self._have_started(requests, began_s)

    def _have_started(self, requests: Sequence[int], began_s: float) -> None:
        for request in requests:
            if request in self._asked:
                self._asked[request].started = True
        self._started(requests, began_s)

    def _refused(self, request: int, error: Exception) -> None:
        if (asked := self._asked.get(request)) and not asked.reply.done():
            asked.reply.set_exception(error)
        elif (sequences := self._sequences.get(request)) is not None:
            sequences.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.look()
        for asked in self._asked.values():
            if not asked.reply.done():
                asked.reply.set_exception(ReplicaLost(asked.started, self._killed))
        for sequences in [*self._sequences.values()]:
            sequences.lost(ReplicaLost(sequences.has_begun))
        self._lost()

    def has_ended(self, was_killed: bool) -> None:
        """How its end is known to have come."""
        if not self._killed.done():
            self._killed.set_result(was_killed)

    def close(self) -> None:
        """What it has not answered is lost."""
        self.look()
        if self._launches is not None:
            self._launches.close()
            self._launches = None
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        """With everything else that is written in this turn of the loop."""
        self._schedule()
        self._outgoing.append(data)

    def _gather(self, ask: PreparedAsk, given: FrontRows) -> None:
        """With others of its signature that are asked in this turn of the loop, in one frame."""
        self._schedule()
        self._single.setdefault(given.rows.signature, []).append((ask, given))

    def _schedule(self) -> None:
        if not self._outgoing and not self._single and self._transport is not None:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        (outgoing, self._outgoing), (single, self._single) = (self._outgoing, []), (self._single, {})
        if self.is_lost:
            return
        frames = list[bytes]()
        for alike in single.values():
            for at in range(0, len(alike), _TOGETHER):
                part = alike[at : at + _TOGETHER]
                rows = [given.rows for _, given in part]
                frames.append(asking_prepared([ask for ask, _ in part], rows, part[0][1].preparer))
        self._transport.write(b"".join([*frames, *outgoing]))  # what is forgotten comes after what was asked

    def _give_up(self, request: int) -> None:
        self.look()
        asked = self._asked.get(request)
        if asked is not None and not asked.reply.done():
            asked.reply.set_exception(Late("the request was not answered by its deadline", asked.started))
            self._write(framed(Forget(request)))


def _launches_at(path: str) -> LaunchReading | None:
    try:
        return LaunchReading(path) if path else None
    except OSError:  # the replica is gone, and its folder with it
        return None


def _answer_of(done: Done) -> Answer:
    return Answer(_rows_of(done), done.tokens, done.truncated, Stages(*done.stages))


def _answer_to(given: FrontRows, reply: Reply, ended_s: float | None) -> Answer:
    """`ended_s`: when the reply was made, where the replica's clock is another one."""
    stages = given.stages
    if isinstance(reply, Done):
        rows = _rows_of(reply)
        *_, stages.forward, finish_s, stages.call_rows = reply.stages
        ended_s = -finish_s if ended_s is None else ended_s
    else:
        message, at = reply
        rows = [RowResult(message.columns, at, message.forward_s, message.call_rows)]
        stages.forward, stages.call_rows = message.forward_s, message.call_rows
        ended_s = message.ended_s if ended_s is None else ended_s
    stages.queue = max(0.0, ended_s - given.queued_s - stages.forward)
    stages.finish = -ended_s  # until the reply is made
    truncated = given.rows.truncated
    cut = int(truncated[0] if len(rows) == 1 else truncated.sum())
    if given.pieces is not None:
        rows = given.pieces.merged_rows(rows, given.info)
    return Answer(rows, given.size.tokens, cut, stages)


def _rows_of(done: Done) -> list[RowResult]:
    return [
        RowResult(part.columns, at, part.forward_s, part.call_rows) for part in done.results for at in range(part.rows)
    ]
