"""One connection of HTTP/1.1: a bounded parser, requests one after the other, and a peer that is not trusted."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httptools

from twoshift.serve.http.messages import HttpError, Reply, Request

__all__ = ["Connection", "Handler", "HttpLimits", "Refusal"]

Handler = Callable[[Request], Awaitable[Reply]]
Refusal = Callable[[HttpError], Reply]

_MOST_WAITING = 16  # requests that a client may send ahead


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may cost."""

    header_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 64 << 20  # also when unpacked
    head_s: float = 10.0  # for a request's line and headers
    body_s: float = 30.0  # between two pieces of a body, and for a reply to be taken
    idle_s: float = 75.0  # between requests
    connections: int = 4096


class Connection(asyncio.Protocol):
    """Reads requests, hands them to the handler in order, and writes its replies."""

    def __init__(self, handler: Handler, refusal: Refusal, limits: HttpLimits, open_: set[Connection]) -> None:
        self._handler, self._refusal, self._limits, self._open = handler, refusal, limits, open_
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._waiting: deque[Request | HttpError] = deque()  # read whole, not yet begun
        self._task: asyncio.Task[None] | None = None
        self._closing = False  # no request after those that are read
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._read_paused = False
        self.due_s = self._loop.time() + limits.head_s  # when the sweep ends it
        self._reset()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if len(self._open) >= self._limits.connections:
            self._waiting.append(HttpError(503, "too many connections"))
            self._closing = True
            self._begin()
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._closing = True
        self._waiting.clear()
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()  # nobody is there to answer: what waits for the device is taken back

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            self._check_head()
        except HttpError as error:
            self._refuse(error)
        except httptools.HttpParserUpgrade:
            self._refuse(HttpError(400, "this server speaks HTTP/1.1 and upgrades to nothing"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, HttpError) else HttpError(400, "no valid HTTP/1.1 request"))

    def _check_head(self) -> None:
        if self._head_bytes > self._limits.header_bytes and not self._in_body:
            raise HttpError(431, f"headers of more than {self._limits.header_bytes:,} bytes")

    def eof_received(self) -> None:
        return None  # the transport closes, and `connection_lost` follows

    def pause_writing(self) -> None:
        self._can_write.clear()
        self.due_s = self._loop.time() + self._limits.body_s

    def resume_writing(self) -> None:
        self._can_write.set()

    # From the parser

    def on_message_begin(self) -> None:
        self._reset()
        if self._task is None:
            self.due_s = self._loop.time() + self._limits.head_s

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._named_bytes += len(name) + len(value)
        if self._count > self._limits.headers or self._named_bytes > self._limits.header_bytes:
            raise HttpError(431, f"more than {self._limits.headers} headers, or {self._limits.header_bytes:,} bytes")
        name = name.lower()
        before = self._headers.get(name)
        if before is not None and name in (b"content-length", b"host", b"authorization"):
            raise HttpError(400, f"the header {name.decode('latin-1')} twice")
        self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        self._in_body = True
        length = self._headers.get(b"content-length")
        if length is not None and b"transfer-encoding" in self._headers:
            raise HttpError(400, "both content-length and transfer-encoding")
        if length is not None and int(length) > self._limits.body_bytes:
            raise HttpError(413, f"a body of more than {self._limits.body_bytes:,} bytes")
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._unpacker = _unpacker(self._headers.get(b"content-encoding"))
        self.due_s = self._loop.time() + self._limits.body_s

    def on_body(self, data: bytes) -> None:
        self.due_s = self._loop.time() + self._limits.body_s
        if self._unpacker is not None:
            data = self._unpacked(data)
        self._size += len(data)
        if self._size > self._limits.body_bytes:
            raise HttpError(413, f"a body of more than {self._limits.body_bytes:,} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._unpacker is not None and self._size and not self._unpacker.eof:
            raise HttpError(400, "a packed body that ends too early")
        method = self._parser.get_method().decode("latin-1")
        keep = self._parser.should_keep_alive()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._waiting.append(Request(method, self._target, self._headers, body, time.monotonic()))
        self._reset()
        if not keep:
            self._closing = True
        if len(self._waiting) >= _MOST_WAITING and not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()
        self._begin()

    # The work

    def _begin(self) -> None:
        if self._task is None and self._waiting:
            self._task = self._loop.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            while self._waiting:
                request = self._waiting.popleft()
                if self._read_paused and not self._waiting:
                    self._read_paused = False
                    self._transport.resume_reading()
                self.due_s = float("inf")  # the handler knows the deadline
                if isinstance(request, HttpError):
                    reply, without_body = self._refusal(request), False
                else:
                    reply, without_body = await self._handler(request), request.method == "HEAD"
                keep = not (reply.close or (self._closing and not self._waiting))
                self._transport.write(reply.encoded(keep, without_body))
                if not self._can_write.is_set():
                    await self._can_write.wait()
                if not keep:
                    self._closing = True
                    self._transport.close()
                    return
            self.due_s = self._loop.time() + self._limits.idle_s
        finally:
            self._task = None

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
        if self._task is None and (self._head_bytes or self._in_body):
            self._refuse(HttpError(408, "the request did not come in time"))
        else:
            self._transport.abort()

    def _refuse(self, error: HttpError) -> None:
        self._closing = True
        self._waiting.append(error)
        self._begin()

    def _reset(self) -> None:
        self._target, self._headers, self._count, self._named_bytes = b"", dict[bytes, bytes](), 0, 0
        self._body, self._size, self._unpacker = list[bytes](), 0, None
        self._head_bytes, self._in_body = 0, False

    def _unpacked(self, data: bytes) -> bytes:
        """Never more than a body may hold, however much it would unpack to."""
        assert self._unpacker is not None  # noqa: S101 - it was looked at before
        try:
            unpacked = self._unpacker.decompress(data, self._limits.body_bytes + 1 - self._size)
        except zlib.error as error:
            raise HttpError(400, "a body that is not packed as its header says") from error
        if self._unpacker.unconsumed_tail:
            raise HttpError(413, f"a body that unpacks to more than {self._limits.body_bytes:,} bytes")
        return unpacked


def _unpacker(encoding: bytes | None) -> Any:
    match (encoding or b"identity").strip().lower():
        case b"identity":
            return None
        case b"gzip" | b"x-gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        case b"deflate":
            return zlib.decompressobj()
        case other:
            raise HttpError(415, f"content-encoding {other.decode('latin-1')}: gzip, deflate or none is expected")
