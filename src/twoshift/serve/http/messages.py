"""Requests and replies as the faces see them."""

from __future__ import annotations

import http
import urllib.parse
from dataclasses import dataclass, field

__all__ = ["HttpError", "Reply", "Request"]

_JSON = b"application/json"
_REASONS = {status.value: status.phrase.encode() for status in http.HTTPStatus}


@dataclass(slots=True)
class Request:
    """One request, whole."""

    method: str
    target: bytes  # as it came: path and query
    headers: dict[bytes, bytes]  # names in lower case; values of the same name joined by commas
    body: bytes
    arrived_s: float  # on the loop's clock: its first byte

    @property
    def path(self) -> str:
        """Without the query, escapes undone."""
        raw = self.target.partition(b"?")[0].decode("latin-1")
        return urllib.parse.unquote(raw) if "%" in raw else raw

    def header(self, name: bytes) -> str | None:
        """One header's value."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


@dataclass(slots=True)
class Reply:
    """One reply, whole."""

    status: int
    body: bytes = b""
    content_type: bytes = _JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    close: bool = False  # the connection cannot be used after it

    def encoded(self, keep_alive: bool, without_body: bool = False) -> bytes:
        """As it goes over the wire."""
        lines = [b"HTTP/1.1 %d %b" % (self.status, _REASONS.get(self.status, b"Unknown"))]
        lines += [b"%b: %b" % pair for pair in self.headers]
        if self.body:
            lines.append(b"content-type: %b" % self.content_type)
        lines.append(b"content-length: %d" % len(self.body))
        if not keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if without_body else self.body)


class HttpError(Exception):
    """A request that is refused as it is read."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
