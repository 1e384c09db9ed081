"""Requests and replies as the faces see them."""

from __future__ import annotations

import http
import math
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from twoshift.endpoints.faults import Fault

if TYPE_CHECKING:
    from twoshift.serve.host import Visit
    from twoshift.serve.http.body import Packed
    from twoshift.serve.http.large import LargeBody
    from twoshift.serve.http.streamed import BodyStream
    from twoshift.serve.keys import Caller

__all__ = ["UNFORESEEN", "Admission", "Pieces", "Reply", "Request", "path_of", "refusal"]

_JSON = b"application/json"
_FIRST_LINES = {each.value: b"HTTP/1.1 %d %b" % (each.value, each.phrase.encode()) for each in http.HTTPStatus}
_NOT_MODIFIED = 304


class Pieces(Protocol):
    """A body that is made as it is sent; closed once it is, or once nobody takes it any more."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def aclose(self) -> Coroutine[Any, Any, None]: ...


class Admission(Protocol):
    """What is decided on a request's head, before its body is read."""

    @property
    def caller(self) -> Caller: ...

    @property
    def fault(self) -> Fault | None: ...  # why it is refused

    @property
    def reads_body(self) -> bool: ...  # False: it is skipped


class Request(msgspec.Struct):
    """One request, whole but for a body that is streamed."""

    method: str
    target: bytes  # as it came: path and query
    headers: dict[bytes, bytes]  # names in lower case; values of the same name joined by commas
    body: bytes | bytearray
    arrived_s: float  # on the monotonic clock: its last byte
    large: LargeBody | None = None  # where its body is: what is done with it is done in threads
    stream: BodyStream | None = None  # the body as it comes in, where its path asks for that
    takes_chunks: bool = True  # whether a reply's length may be left open
    packed: Packed | None = None  # the body, until it is unpacked
    admission: Admission | None = None  # None: its handler decides
    unread: bool = False  # it is refused before its body has come
    visit: Visit | None = None  # what it costs the host, where it was admitted to it
    refused: bool = False  # the host has too much to do: it is not parsed

    @property
    def path(self) -> str:
        """Without the query; escapes as they came, since `%2F` is no slash."""
        return path_of(self.target)

    def header(self, name: bytes) -> str | None:
        """One header's value."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def has_body(self) -> bool:
        """Or says that it has one."""
        return b"content-length" in self.headers or b"transfer-encoding" in self.headers

    @property
    def ends_connection(self) -> bool:
        """Whether its client wants no further reply on its connection."""
        asked = self.headers.get(b"connection", b"").lower()
        return b"close" in asked or (not self.takes_chunks and b"keep-alive" not in asked)

    def head(self) -> bytes:
        """Written anew, for another process to read."""
        version = b"1.1" if self.takes_chunks else b"1.0"
        lines = [b"%b %b HTTP/%b" % (self.method.encode("latin-1"), self.target, version)]
        lines += (b"%b: %b" % pair for pair in self.headers.items())
        return b"\r\n".join((*lines, b"", b""))

    def give_room(self) -> None:
        """What its body holds."""
        if self.large is not None:
            self.large.give()


class Reply(msgspec.Struct):
    """One reply."""

    status: int
    body: bytes = b""
    content_type: bytes = _JSON
    headers: list[tuple[bytes, bytes]] = msgspec.field(default_factory=list[tuple[bytes, bytes]])
    close: bool = False  # the connection cannot be used after it
    stream: Pieces | None = None  # the body in pieces, instead of `body`
    stream_bytes: int | None = 0  # of all of them; None: nobody knows yet

    def encoded(self, keep_alive: bool, without_body: bool = False, chunked: bool = False) -> bytes:
        """As it goes over the wire; `chunked`: its pieces say themselves how long they are."""
        lines = [_FIRST_LINES.get(self.status) or b"HTTP/1.1 %d Unknown" % self.status]
        for pair in self.headers:
            lines.append(b"%b: %b" % pair)
        size = len(self.body) if self.stream is None else self.stream_bytes
        if size != 0 or self.stream is not None:
            lines.append(b"content-type: %b" % self.content_type)
        if chunked:
            lines.append(b"transfer-encoding: chunked")
        elif size is not None and self.status != _NOT_MODIFIED:  # it has none, whatever it says
            lines.append(b"content-length: %d" % size)
        if not keep_alive:
            lines.append(b"connection: close")
        lines += (b"", b"" if without_body else self.body)
        return b"\r\n".join(lines)


# Where making a reply fails; its body is a constant, so that writing it cannot
UNFORESEEN = Reply(
    500,
    b'{"error":{"message":"the server failed; see its log","type":"internal_error","param":null,'
    b'"code":"internal_error"}}',
    close=True,
)


def refusal(fault: Fault, body: bytes) -> Reply:
    """An error as HTTP has it."""
    headers = list[tuple[bytes, bytes]]()
    if fault.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if fault.status == 413:
        headers.append((b"x-should-retry", b"false"))
    if fault.retry_after_s is not None:  # whole seconds for everybody, milliseconds for those who read them
        milliseconds = max(1, math.ceil(1e3 * fault.retry_after_s))
        headers.append((b"retry-after", b"%d" % math.ceil(milliseconds / 1e3)))
        headers.append((b"retry-after-ms", b"%d" % milliseconds))
    return Reply(fault.status, body, headers=headers)


def path_of(target: bytes) -> str:
    """The path of a request's target."""
    raw = target.partition(b"?")[0].decode("latin-1")
    if raw.startswith("/") or "://" not in raw:
        return raw
    return "/" + raw.partition("://")[2].partition("/")[2]  # as proxies are asked; servers must take it, too
