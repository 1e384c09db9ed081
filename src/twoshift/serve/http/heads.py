"""Heads of requests that were read before: a client sends the same bytes with each, and they are parsed once."""

from __future__ import annotations

from typing import NamedTuple

from twoshift.serve.http.messages import Request

__all__ = ["Head", "Heads"]

_END = b"\r\n\r\n"
_MANY, _LONG_BYTES = 1024, 2048  # that are remembered; of how many bytes each
_OTHER_BODY = (b"transfer-encoding", b"content-encoding", b"expect")  # what follows is more than so many bytes


class Head(NamedTuple):
    """What the parser has made of it."""

    method: str
    target: bytes
    headers: dict[bytes, bytes]  # shared: to be read
    body_bytes: int


class Heads:
    """Those of whole requests whose connections stay open, as HTTP/1.1 has them."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}

    def find(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the body, where the data is a whole request, no more, and its head is known."""
        end = data.find(_END, 0, _LONG_BYTES) + len(_END)
        head = self._known.get(data[:end])
        return None if head is None or end + head.body_bytes != len(data) else (head, data[end:])

    def learn(self, data: bytes, request: Request) -> None:
        """The data was read as this very request, and nothing else."""
        end = data.find(_END, 0, _LONG_BYTES) + len(_END)
        body_bytes = int(request.headers.get(b"content-length", 0))
        # Where they do not add up, that was not the head's end
        if end + body_bytes != len(data) or not request.takes_chunks or any(map(request.headers.get, _OTHER_BODY)):
            return
        if len(self._known) >= _MANY:
            self._known.clear()
        self._known[data[:end]] = Head(request.method, request.target, request.headers, body_bytes)
