"""One connection of HTTP/1.1: requests one after the other, and a peer that is not trusted."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import httptools

from twoshift.endpoints.faults import forget_frames
from twoshift.serve.http.departure import Departure
from twoshift.serve.http.framing import framing_of
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Request
from twoshift.serve.http.peers import Peers
from twoshift.serve.http.reading import HeadRefused, Reading, other_version
from twoshift.serve.http.replies import Replies
from twoshift.serve.http.unread_refusals import UnreadRefusals
from twoshift.serve.http.writing import NEVER_S, Writing

__all__ = ["Connection"]

_MANY_WAITING = 16  # requests sent ahead, from which no more is read
_MOST_WAITING = 256  # that one piece of data may hold
_FULL_S = 1.0


class Connection(asyncio.Protocol):
    """Reads requests, has them answered in order, and writes the replies."""

    def __init__(self, replies: Replies, peers: Peers, taken_over: bytes = b"") -> None:
        """`taken_over`: what another process has read, which would answer most of what comes after the first reply."""
        self._taken_over, self._is_guest = taken_over, bool(taken_over)
        self._reply_to, self._peers, self._limits = replies.to, peers, peers.limits
        self._loop = asyncio.get_running_loop()
        self.transport: Any = None
        self.address = ""  # of the peer
        self._waiting: deque[Request | HttpError] = deque()  # read whole, not yet begun
        self._task: asyncio.Task[None] | None = None
        self._closing = False  # no request after those that are read
        self._full: set[str] = set()  # of what: nothing is read until it is not
        # When the sweep ends it. Pools connect before they ask: without a first byte it is as idle as between requests
        self.due_s = self._loop.time() + self._limits.idle_s
        self._reply_due_s = NEVER_S  # for replies, once the peer has ended its side
        self._has_departed = False  # another process answers what comes
        self._is_held = False  # by a refusal that is not written yet
        self._refusals = None if peers.gate is None else UnreadRefusals(peers.gate, self)
        self._reading, self._writing = Reading(peers, self, self._loop.time), Writing(self)
        self._departure = None if peers.handover is None else Departure(peers.handover, self, self._reading)

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        try:
            self._peers.enter(self)
        except HttpError as error:
            self._refuse(error)
        if self._taken_over:  # before anything else is read
            self.data_received(self._taken_over)
            self._taken_over = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.leave(self)
        self._closing = True
        for each in self._waiting:
            if isinstance(each, Request):
                each.give_room()
                if each.visit is not None:
                    each.visit.end()
        self._waiting.clear()
        self._reading.stream = None
        self._reading.reset()
        self._writing.can_write.set()
        if self._refusals is not None:
            self._refusals.cancel()
        if self._task is not None:
            self._task.cancel()  # nobody is there to answer: what waits for the device is taken back

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if self._closing and reading.stream is None:
            return
        try:
            departure = self._departure
            begins = reading.between and not (departure is not None and departure.data)
            if begins and (known := self._peers.heads.find(data)) is not None:
                (method, target, headers, _), body = known
                reading.loose_bytes = 0  # as after a head that was parsed
                self.take(Request(method, target, headers, body, time.monotonic()))
            elif departure is None:
                reading.feed(data)
            elif departure.takes(data):
                return
            else:
                reading.feed(departure.unread(data))
            if departure is not None and departure.data:
                departure.begin()
        except HttpError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, HeadRefused):
                self._refuse(cause.request)
            elif isinstance(cause, HttpError):
                self._refuse(cause)
            else:
                is_other = "HTTP version" in str(error)
                self._refuse(
                    other_version() if is_other else HttpError(400, "the request is not a valid HTTP/1.1 request")
                )

    def eof_received(self) -> bool:
        """A peer that has ended its side waits for its replies, or has gone: nobody can tell, so it has some time."""
        is_tls = not self.transport.can_write_eof()  # it has no half of a connection
        if (self._task is None and not self._is_held) or self._reading.stream is not None or is_tls:
            return False  # the transport closes, and `connection_lost` follows
        self._closing = True
        if not self._writing.pours:  # one that has gone is found out by what is written
            self.due_s = self._reply_due_s = self._loop.time() + self._limits.half_closed_s
        return True

    def pause_writing(self) -> None:
        self._writing.pause(self._loop.time() + self._limits.body_s)

    def resume_writing(self) -> None:
        self._writing.can_write.set()

    # From the reading

    def take(self, request: Request) -> None:
        """In its turn."""
        if self._departure is not None and self._departure.takes_along(request):
            return
        if len(self._waiting) >= _MOST_WAITING:
            request.give_room()
            raise HttpError(
                503, f"this connection has more than {_MOST_WAITING} pipelined requests", retry_after_s=_FULL_S
            )
        refusals = self._refusals
        if refusals is not None and self.is_free and not refusals.gate.admits(request):
            if not self._closing and self._writing.can_write.is_set():
                self.due_s = self._loop.time() + self._limits.idle_s
                if refusals.refuse(request):
                    self._is_held = True
                    self._peers.idle.pop(self, None)
                return
            request.refused = True  # what was written before is not taken yet
        self._waiting.append(request)
        if len(self._waiting) >= _MANY_WAITING:
            self.fill("queue", True)
        self._begin()

    def head_began(self) -> None:
        """Of a request that comes in more than one piece."""
        if self._task is None:
            self.due_s = self._loop.time() + self._limits.head_s

    def body_came(self, due_s: float) -> None:
        """Some of one."""
        if self._task is None:
            self.due_s = min(self._loop.time() + self._limits.body_s, due_s)
            if self in self._peers.idle:
                del self._peers.idle[self]
                self._peers.idle[self] = None  # not so idle as others

    def go_on(self) -> None:
        """Out of turn, it would be read as another one's reply."""
        if self.is_free:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def last(self) -> None:
        """No request after those that are read."""
        self._closing = True
        if self.is_free:  # the last one is refused already
            self.transport.close()

    def fill(self, what: str, full: bool) -> None:
        """Nothing is read while something is full."""
        before = bool(self._full)
        (self._full.add if full else self._full.discard)(what)
        if bool(self._full) != before and not self.transport.is_closing():
            (self.transport.pause_reading if self._full else self.transport.resume_reading)()

    # The work

    def _begin(self) -> None:
        if self._task is None and self._waiting and not self._is_held:
            self._peers.idle.pop(self, None)
            self._task = self._loop.create_task(self._answer())

    async def _answer(self) -> None:
        asked: Request | HttpError | None = None
        writing = self._writing
        try:
            while self._waiting:
                asked = self._next()
                if (turn := self._peers.turn_of(asked)) is not None:
                    await turn
                reply = await self._reply_to(asked)
                framing = framing_of(asked, reply, self.is_last())
                reply = writing.write(reply, framing)
                if isinstance(asked, Request) and asked.visit is not None:
                    asked.visit.end()
                asked = None
                if reply.stream is not None:
                    await writing.pour(reply.stream, framing)
                if self.transport.is_closing():
                    return
                if not writing.can_write.is_set():
                    await writing.can_write.wait()
                if reply.close or not framing.keep or self.is_last():  # it may have become that while pieces were sent
                    self._leave(linger=framing.unread)
                    return
            self.due_s = self._loop.time() + self._limits.idle_s
            self._peers.idle[self] = None
            if self._departure is not None and self._departure.data:
                self._loop.call_soon(self._departure.go)
        except Exception:
            self.transport.abort()  # it would wait for a reply that nobody makes
            raise
        finally:
            self._task = None
            if isinstance(asked, Request) and asked.visit is not None:
                asked.visit.end()

    def _next(self) -> Request | HttpError:
        """What has its turn now."""
        asked = self._waiting.popleft()
        if self._full and not self._waiting:
            self.fill("queue", False)
        self.due_s = self._reply_due_s  # the handler knows the deadline
        if self._refusals is not None and isinstance(asked, Request):
            self._refusals.gate.admit_in_turn(asked)
        return asked

    @property
    def is_free(self) -> bool:
        """Whether the next request has its turn at once."""
        return self._task is None and not self._waiting and not self._is_held

    def resume(self) -> None:
        """Its refusal is written: what came behind it has its turn."""
        self._is_held = False
        if self._waiting:
            self._begin()
        elif self._closing:
            self.transport.close()
        else:
            self._peers.idle[self] = None

    def is_last(self, request: Request | None = None) -> bool:
        """Whether no request comes after the one that is answered; one that is refused unread says so."""
        ends = self._closing or self._is_guest or (request is not None and request.ends_connection)
        return ends and not self._waiting

    # The end

    def stop(self) -> None:
        """No request after those that are read; closed at once where there is none."""
        self._closing = True
        if self._task is None and not self._is_held and self.transport is not None and not self._has_departed:
            self.transport.close()

    def depart(self) -> None:
        """It stays only to be counted, until it is closed."""
        self._has_departed, self.due_s = True, NEVER_S
        self._peers.idle.pop(self, None)

    def abort(self) -> None:
        """Now."""
        self.transport.abort()

    def sweep(self, now_s: float) -> None:
        """Ends a connection that has had its time."""
        if now_s < self.due_s:
            return
        unsent = self.transport.get_write_buffer_size()
        if self._writing.extend(unsent, now_s + self._limits.body_s):
            return
        if self._task is not None or self._closing or unsent:
            self.transport.abort()
        elif self._reading.is_amid or (self._departure is not None and self._departure.data):
            self._refuse(HttpError(408, "the request did not arrive in time"))
        else:
            self.transport.close()

    def _refuse(self, why: HttpError | Request) -> None:
        """The last reply: an error, or a request that is answered unread."""
        if isinstance(why, HttpError):
            forget_frames(why)  # one of them has the body that was too large
            why.path = self._reading.path
        stream, self._reading.stream = self._reading.stream, None
        if stream is not None:  # who reads it makes the reply
            assert isinstance(why, HttpError)  # noqa: S101 - its head is read
            stream.fail(why)
            self._closing = True
            return
        if self._closing:
            return  # what comes after the last request is nobody's
        self._closing = True
        self._reading.reset()
        self._waiting.append(why)
        self._begin()

    def _leave(self, linger: bool) -> None:
        self._closing, self._reading.stream = True, None
        self.fill("stream", False)
        self.due_s = self._loop.time() + (self._limits.linger_s if linger else self._limits.body_s)
        if linger and self in self._peers.open and not self.transport.is_closing():
            # A close with bytes unread is a reset, and the peer would lose our last words: they are read and forgotten.
            if self.transport.can_write_eof():  # over TLS the reply's own end must do, and the peer closes
                self.transport.write_eof()
        else:
            self.transport.close()
