"""Bytes to requests: a bounded parser that lets a request in on its head, before any of its body is kept."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Protocol

import httptools

from twoshift.policy.host import SMALL_BYTES
from twoshift.serve.http.body import Body, Packed, SkippedBody, check_encoding, too_large
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.large import LargeBody
from twoshift.serve.http.messages import Admission, Request, path_of
from twoshift.serve.http.peers import Peers
from twoshift.serve.http.streamed import BodyStream
from twoshift.serve.keys import ANYONE

__all__ = ["HeadRefused", "Reader", "Reading", "other_version"]

_ONCE = frozenset((b"content-length", b"host", b"authorization", b"x-api-key"))
_VERSIONS = ("1.1", "1.0")
_GO_ON = b"100-continue"
_UPGRADES = (b"upgrade", b"http2-settings")


class HeadRefused(Exception):
    """A request that is answered before its large body is read."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


class Reader(Protocol):
    """Who takes the requests."""

    address: str

    def take(self, request: Request) -> None:
        """The next one, whole or with a body that is streamed."""
        ...

    def head_began(self) -> None: ...

    def body_came(self, due_s: float) -> None:
        """Some of a body, which has until then as a whole."""
        ...

    def go_on(self) -> None:
        """The peer waits to be told that before it sends the body."""
        ...

    def fill(self, what: str, full: bool) -> None:
        """Nothing is read while something is full."""
        ...

    def last(self) -> None:
        """Nothing comes after this request."""
        ...


class Reading:
    """One connection's bytes."""

    def __init__(self, peers: Peers, reader: Reader, clock: Any) -> None:
        self._peers, self._limits, self._reader, self._clock = peers, peers.limits, reader, clock
        self._parser = httptools.HttpRequestParser(self)
        self.stream: BodyStream | None = None  # of the request that is being read, where it is streamed
        self.between = True  # two requests, as the parser has it
        self._is_last = False
        self._body: Body | SkippedBody | None = None
        self._read: list[Request] = []  # out of the piece of data that is being parsed
        self.reset()

    @property
    def is_amid(self) -> bool:
        """A request of which some has come."""
        return bool(self.loose_bytes or self._in_body)

    @property
    def path(self) -> str:
        """Of the request that is being read, as far as it has come."""
        return path_of(self._target)

    def feed(self, data: bytes) -> None:
        """The next bytes; raises HttpError, HeadRefused and what the parser does."""
        begins, self._read = self.between, []
        rest: bytes | None = data
        while rest is not None:
            self.loose_bytes += len(rest)
            rest = self._parsed(rest)
        if self.loose_bytes > self._limits.header_bytes:
            raise HttpError(431, f"the request has headers of more than {self._limits.header_bytes:,} bytes")
        read, self._read = self._read, []
        if begins and self.between and len(read) == 1 and len(data) < SMALL_BYTES and not self._is_last:
            self._peers.heads.learn(data, read[0])

    def _parsed(self, data: bytes) -> bytes | None:
        """What is to be parsed instead of what an upgrade has left: the same request without it."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_upgrade(data[upgrade.args[0] :])
        return None

    def reset(self) -> None:
        """Between two requests; what is held of one is let go."""
        self._target, self._headers, self._count, self._named_bytes = b"", dict[bytes, bytes](), 0, 0
        self.loose_bytes, self._in_body = 0, False  # bytes that are no part of a body, since there was one
        self._request: Request | None = None
        if self._body is not None:
            self._peers.room.give(self._body.client, self._body.held_bytes)
            self._body = None

    def _without_upgrade(self, rest: bytes) -> bytes | None:
        """An upgrade may be ignored (RFC 9110, 7.8), but the parser leaves out the body of who asks for one."""
        if (method := self._method()) == "CONNECT":
            self._reader.take(self._made())
            self._end_after_this()
            return None
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method.encode("latin-1"), self._target, version)]
        for name, value in self._headers.items():
            if name == b"connection":
                value = b",".join(each for each in value.split(b",") if each.strip().lower() not in _UPGRADES)
            if name not in _UPGRADES and value:
                lines.append(b"%b: %b" % (name, value))
        self._parser = httptools.HttpRequestParser(self)
        self.reset()
        self.between = True
        return b"\r\n".join([*lines, b"", rest])

    # From the parser

    def on_message_begin(self) -> None:
        self.between = False
        self._reader.head_began()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._named_bytes += len(name) + len(value)
        if self._count > self._limits.headers or self._named_bytes > self._limits.header_bytes:
            raise HttpError(
                431,
                f"the request has more than {self._limits.headers} headers, or headers of more than "
                f"{self._limits.header_bytes:,} bytes",
            )
        if self._in_body:
            return  # a trailer: nothing is decided by what comes after the decision
        name = name.lower()
        before = self._headers.get(name)
        if before is not None and name in _ONCE:
            raise HttpError(400, f"the header {name.decode('latin-1')} occurs twice")
        self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # it is read again without that
        self._in_body = True
        self.loose_bytes = 0
        headers, version = self._headers, self._parser.get_http_version()
        if version not in _VERSIONS:
            raise other_version()
        if version == "1.1":
            _check_new(headers)
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if length is None and coding is None:
            return
        if length is not None and coding is not None:
            raise HttpError(400, "the request has both content-length and transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise HttpError(501, "the request has a transfer-encoding other than chunked")
        self._request = self._made()
        if self._peers.streams(self._request.method, self._target):
            self._begin_stream(self._request)
        else:
            self._begin_body(self._request, None if length is None else int(length))

    def on_body(self, data: bytes) -> None:
        self.loose_bytes = 0
        if self.stream is not None:
            self.stream.feed(data)
        elif self._body is not None:  # that of a request that is refused is read and forgotten
            self._body.add(data)
            self._reader.body_came(self._body_due_s)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self.stream is None:
            request = self._request or self._made()
            request.arrived_s = time.monotonic()
            if isinstance(self._body, Body):
                self._end_body(request, self._body)
            self._reader.take(request)
            self._read.append(request)
        else:
            self.stream.end()
            self.stream = None
        self.reset()
        self.between = True
        if not self._parser.should_keep_alive():
            self._end_after_this()

    def _end_after_this(self) -> None:
        self._is_last = True
        self._reader.last()

    # Bodies

    def _begin_body(self, request: Request, length: int | None) -> None:
        """Only what is let in is kept; a large body that is not is not waited for."""
        request.admission = admission = self._peers.admit(request)
        if admission is not None and admission.fault is not None:
            if length is None or length > SMALL_BYTES or b"expect" in self._headers:
                request.unread, request.arrived_s = True, time.monotonic()
                raise HeadRefused(request)
            return
        self._body = self._skipped(length) if admission and not admission.reads_body else self._kept(admission, length)
        self._body_due_s = self._clock() + self._limits.whole_body_s
        self._reader.body_came(self._body_due_s)
        self._tell_to_go_on()

    @staticmethod
    def _skipped(length: int | None) -> SkippedBody:
        made = SkippedBody()
        made.check(length or 0)
        return made

    def _kept(self, admission: Admission | None, length: int | None) -> Body:
        if length is not None and length > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)
        check_encoding(self._headers.get(b"content-encoding"))
        named = admission is not None and admission.caller is not ANYONE
        client = f"key {admission.caller.name}" if admission is not None and named else self._reader.address
        return Body(self._limits.body_bytes, self._peers.room, client)

    def _end_body(self, request: Request, body: Body) -> None:
        self._body = None
        request.body = whole = body.whole()
        if len(whole) > SMALL_BYTES:
            request.large = LargeBody(self._peers.large, body.client, body.held_bytes)
        encoding = check_encoding(self._headers.get(b"content-encoding"))
        if encoding is None or not whole:
            return
        packed = Packed(whole, encoding, self._limits.body_bytes)
        if request.large is None and not packed.more(SMALL_BYTES):
            request.body = packed.whole()
            return
        request.body, request.packed = b"", packed
        request.large = request.large or LargeBody(self._peers.large, body.client, 0)

    def _begin_stream(self, request: Request) -> None:
        """The request is handed on before its body is there."""
        if self._headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise HttpError(415, "this path does not support a content-encoding")
        request.stream = self.stream = BodyStream(self._limits.body_s, partial(self._reader.fill, "stream"))
        self._tell_to_go_on()
        request.arrived_s = time.monotonic()
        self._reader.take(request)

    def _tell_to_go_on(self) -> None:
        if self._headers.get(b"expect") and self._parser.get_http_version() == "1.1":
            self._reader.go_on()

    def _made(self) -> Request:
        chunks = self._parser.get_http_version() != "1.0"
        return Request(self._method(), self._target, self._headers, b"", 0.0, takes_chunks=chunks)

    def _method(self) -> str:
        return self._parser.get_method().decode("latin-1")


def other_version() -> HttpError:
    """The error for a version of HTTP that is not spoken here."""
    return HttpError(505, "this HTTP version is not supported; use HTTP/1.1 or HTTP/1.0")


def _check_new(headers: dict[bytes, bytes]) -> None:
    """What HTTP/1.1 asks of a head; raises HttpError."""
    if b"host" not in headers:
        raise HttpError(400, "an HTTP/1.1 request needs the header Host")
    if (headers.get(b"expect") or _GO_ON).lower() != _GO_ON:
        raise HttpError(417, "the header Expect may only be 100-continue")
