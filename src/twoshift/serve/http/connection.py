"""One connection of HTTP/1.1: a bounded parser, requests one after the other, and a peer that is not trusted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httptools

from twoshift.serve.http.body import SMALL_BYTES, Body, Room
from twoshift.serve.http.heads import Heads
from twoshift.serve.http.messages import HttpError, Pieces, Reply, Request
from twoshift.serve.http.streamed import BodyStream

__all__ = ["Connection", "Handler", "HttpLimits", "Peers", "Refusal", "Streams"]

Handler = Callable[[Request], Awaitable[Reply]]
Refusal = Callable[[HttpError], Reply]
Streams = Callable[[str, bytes], bool]  # whether a method and target take their body as it comes in

_logger = logging.getLogger("twoshift.serve")
_MANY_WAITING = 16  # requests sent ahead, from which no more is read
_MOST_WAITING = 256  # that one piece of data may hold
_TAKEN_BYTES = 64 << 10  # of a reply, that a peer takes at least in the time that it has
_ONCE = frozenset((b"content-length", b"host", b"authorization", b"x-api-key"))
_NEVER_S = float("inf")
_FULL_S = 1.0


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may cost."""

    header_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 64 << 20  # also when unpacked
    bodies_bytes: int = 256 << 20  # of all large bodies together
    head_s: float = 10.0  # for a request's line and headers
    body_s: float = 30.0  # between two pieces of a body, and for a piece of a reply to be taken
    whole_body_s: float = 120.0
    idle_s: float = 75.0  # between requests
    linger_s: float = 2.0  # for a refused peer to read why, while it still sends
    connections: int = 4096


@dataclass(slots=True, eq=False)
class Peers:
    """Every connection of a server, and what they share."""

    limits: HttpLimits
    streams: Streams = lambda _method, _target: False
    open: set[Connection] = field(default_factory=lambda: set[Connection]())
    room: Room = field(init=False)
    heads: Heads = field(default_factory=Heads)

    def __post_init__(self) -> None:
        self.room = Room(max(self.limits.bodies_bytes, self.limits.body_bytes))


class Connection(asyncio.Protocol):
    """Reads requests, hands them to the handler in order, and writes its replies."""

    def __init__(self, handler: Handler, refusal: Refusal, peers: Peers) -> None:
        self._handler, self._refusal, self._peers, self._limits = handler, refusal, peers, peers.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._waiting: deque[Request | HttpError] = deque()  # read whole, not yet begun
        self._task: asyncio.Task[None] | None = None
        self._closing = False  # no request after those that are read
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._unsent_bytes = 0  # of replies, when its time began
        self._full: set[str] = set()  # of what: nothing is read until it is not
        self.due_s = self._loop.time() + self._limits.head_s  # when the sweep ends it
        self._body: Body | None = None
        self._stream: BodyStream | None = None  # of the request that is being read, where it is streamed
        self._between = True  # two requests, as the parser has it
        self._read: list[Request] = []  # out of the piece of data that is being parsed
        self._reset()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if len(self._peers.open) >= self._limits.connections:
            self._refuse(HttpError(503, "too many connections", retry_after_s=_FULL_S))
        else:
            self._peers.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.open.discard(self)
        self._closing = True
        for each in self._waiting:
            self._give_room(each)
        self._waiting.clear()
        self._stream = None
        self._reset()
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()  # nobody is there to answer: what waits for the device is taken back

    def data_received(self, data: bytes) -> None:
        if self._closing and self._stream is None:
            return
        try:
            if self._between and (known := self._peers.heads.find(data)) is not None:
                (method, target, headers, _), body = known
                self._loose_bytes = 0  # as after a head that was parsed
                self._queue(Request(method, target, headers, body, time.monotonic()))
                self._begin()
            else:
                self._parse(data)
        except HttpError as error:
            self._refuse(error)
        except httptools.HttpParserUpgrade:
            self._closing = True  # it is answered as it is: an upgrade may be left out
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, HttpError) else HttpError(400, "no valid HTTP/1.1 request"))

    def _parse(self, data: bytes) -> None:
        begins, self._read = self._between, []
        self._loose_bytes += len(data)
        self._parser.feed_data(data)
        if self._loose_bytes > self._limits.header_bytes:
            raise HttpError(431, f"headers of more than {self._limits.header_bytes:,} bytes")
        read, self._read = self._read, []
        if begins and self._between and len(read) == 1 and len(data) < SMALL_BYTES and not self._closing:
            self._peers.heads.learn(data, read[0])

    def eof_received(self) -> None:
        return None  # the transport closes, and `connection_lost` follows

    def pause_writing(self) -> None:
        self._can_write.clear()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.due_s = self._loop.time() + self._limits.body_s

    def resume_writing(self) -> None:
        self._can_write.set()

    # From the parser

    def on_message_begin(self) -> None:
        self._between = False
        if self._task is None:
            self.due_s = self._loop.time() + self._limits.head_s

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._named_bytes += len(name) + len(value)
        if self._count > self._limits.headers or self._named_bytes > self._limits.header_bytes:
            raise HttpError(431, f"more than {self._limits.headers} headers, or {self._limits.header_bytes:,} bytes")
        if self._in_body:
            return  # a trailer: nothing is decided by what comes after the decision
        name = name.lower()
        before = self._headers.get(name)
        if before is not None and name in _ONCE:
            raise HttpError(400, f"the header {name.decode('latin-1')} twice")
        self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._loose_bytes = 0
        length, coding = self._headers.get(b"content-length"), self._headers.get(b"transfer-encoding")
        if length is None and coding is None:
            return
        if length is not None and coding is not None:
            raise HttpError(400, "both content-length and transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise HttpError(501, "a transfer-encoding other than chunked")
        if self._peers.streams(self._method(), self._target):
            self._begin_stream()
            return
        if length is not None and int(length) > self._limits.body_bytes:
            raise HttpError(413, f"a body of more than {self._limits.body_bytes:,} bytes")
        self._body = Body(self._limits.body_bytes, self._peers.room, self._headers.get(b"content-encoding"))
        self._body_due_s = self._loop.time() + self._limits.whole_body_s
        self._body_goes_on()
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue":
            self._continue()

    def on_body(self, data: bytes) -> None:
        self._loose_bytes = 0
        if self._stream is not None:
            self._stream.feed(data)
            return
        assert self._body is not None  # noqa: S101 - the parser reads none that the headers did not name
        self._body.add(data)
        self._body_goes_on()

    def on_message_complete(self) -> None:
        if self._stream is None:
            body, held_bytes = b"", 0
            if self._body is not None:
                body, held_bytes = self._body.whole(), self._body.held_bytes
                self._body = None
            self._queue(request := self._request(body, held_bytes))
            self._read.append(request)
        else:
            self._stream.end()
            self._stream = None
        self._reset()
        self._between = True
        if not self._parser.should_keep_alive():
            self._closing = True
        self._begin()

    def _begin_stream(self) -> None:
        """The request is handed on before its body is there."""
        if self._headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise HttpError(415, "a content-encoding here: the body is expected as it is")
        self._stream = BodyStream(self._limits.body_s, lambda full: self._fill("stream", full))
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue":
            self._continue()
        self._queue(self._request(b"", 0, self._stream))
        self._begin()

    def _request(self, body: bytes, held_bytes: int, stream: BodyStream | None = None) -> Request:
        now_s = time.monotonic()
        chunks = self._parser.get_http_version() != "1.0"
        return Request(self._method(), self._target, self._headers, body, now_s, held_bytes, stream, chunks)

    def _queue(self, request: Request) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            raise HttpError(503, f"more than {_MOST_WAITING} requests ahead of their replies", retry_after_s=_FULL_S)
        self._waiting.append(request)
        if len(self._waiting) >= _MANY_WAITING:
            self._fill("queue", True)

    def _method(self) -> str:
        return self._parser.get_method().decode("latin-1")

    def _fill(self, what: str, full: bool) -> None:
        """Nothing is read while something is full."""
        before = bool(self._full)
        (self._full.add if full else self._full.discard)(what)
        if bool(self._full) != before and not self._transport.is_closing():
            (self._transport.pause_reading if self._full else self._transport.resume_reading)()

    def _continue(self) -> None:
        """The peer waits for it before it sends the body; out of turn, it would be read as another one's reply."""
        if self._task is None and self._parser.get_http_version() == "1.1":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _body_goes_on(self) -> None:
        if self._task is None:
            self.due_s = min(self._loop.time() + self._limits.body_s, self._body_due_s)

    def _reset(self) -> None:
        """Between two requests."""
        self._target, self._headers, self._count, self._named_bytes = b"", dict[bytes, bytes](), 0, 0
        self._loose_bytes, self._in_body = 0, False  # bytes that are no part of a body, since there was one
        if self._body is not None:
            self._peers.room.give(self._body.held_bytes)
            self._body = None

    # The work

    def _begin(self) -> None:
        if self._task is None and self._waiting:
            self._task = self._loop.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            while self._waiting:
                asked = self._waiting.popleft()
                if self._full and not self._waiting:
                    self._fill("queue", False)
                self.due_s = _NEVER_S  # the handler knows the deadline
                if isinstance(asked, HttpError):
                    reply, unread, without_body, takes_chunks = self._refusal(asked), False, False, False
                else:
                    try:
                        reply = await self._handler(asked)
                    finally:
                        if asked.held_bytes:
                            self._give_room(asked)
                    unread = asked.stream is not None and not asked.stream.is_over
                    without_body, takes_chunks = asked.method == "HEAD", asked.takes_chunks
                open_end = reply.stream is not None and reply.stream_bytes is None
                chunked = open_end and takes_chunks
                keep = not (reply.close or unread or (open_end and not chunked) or self._is_last)
                if not self._transport.is_closing():
                    self._transport.write(reply.encoded(keep, without_body, chunked))
                if reply.stream is not None:
                    await self._pour(reply.stream, without_body, chunked)
                if self._transport.is_closing():
                    return
                if not self._can_write.is_set():
                    await self._can_write.wait()
                if not keep or self._is_last:  # it may have become that while pieces were sent
                    self._leave(linger=unread or isinstance(asked, HttpError))
                    return
            self.due_s = self._loop.time() + self._limits.idle_s
        except Exception:
            self._transport.abort()  # it would wait for a reply that nobody makes
            raise
        finally:
            self._task = None

    @property
    def _is_last(self) -> bool:
        """Whether no request comes after this one."""
        return self._closing and not self._waiting

    async def _pour(self, stream: Pieces, without_body: bool, chunked: bool) -> None:
        """The pieces of a reply, no faster than the peer takes them."""
        try:
            async for piece in stream:  # one that was never begun would not notice its end
                if without_body or self._transport.is_closing():
                    return
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if not self._can_write.is_set():
                    await self._can_write.wait()
                    self.due_s = _NEVER_S
            if chunked and not self._transport.is_closing():
                self._transport.write(b"0\r\n\r\n")
        except Exception:
            _logger.exception("a reply was cut short")
            self._transport.abort()  # its length was told, or its end was not: the peer sees that it is not whole
        finally:
            await stream.aclose()

    def _give_room(self, asked: Request | HttpError) -> None:
        if isinstance(asked, Request) and asked.held_bytes:
            self._peers.room.give(asked.held_bytes)

    # The end

    def stop(self) -> None:
        """No request after those that are read; closed at once where there is none."""
        self._closing = True
        if self._task is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Now."""
        self._transport.abort()

    def sweep(self, now_s: float) -> None:
        """Ends a connection that has had its time."""
        if now_s < self.due_s:
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent + _TAKEN_BYTES <= self._unsent_bytes:  # slow, but it reads
            self._unsent_bytes, self.due_s = unsent, now_s + self._limits.body_s
        elif self._task is not None or self._closing or unsent:
            self._transport.abort()
        elif self._loose_bytes or self._in_body:
            self._refuse(HttpError(408, "the request did not come in time"))
        else:
            self._transport.close()

    def _refuse(self, error: HttpError) -> None:
        if self._stream is not None:  # who reads it makes the reply
            self._stream.fail(error)
            self._stream, self._closing = None, True
            return
        if self._closing:
            return  # what comes after the last request is nobody's
        self._closing = True
        self._reset()
        self._waiting.append(error)
        self._begin()

    def _leave(self, linger: bool) -> None:
        self._closing, self._stream = True, None
        self._fill("stream", False)
        self.due_s = self._loop.time() + (self._limits.linger_s if linger else self._limits.body_s)
        if linger and self in self._peers.open and not self._transport.is_closing():
            # A close with bytes unread is a reset, and the peer would lose our last words: they are read and forgotten.
            self._transport.write_eof()
        else:
            self._transport.close()
