"""Somebody else's server, which webhooks are sent to; it may be slow, broken or hostile."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["SECRET", "Posted", "Receiver"]

SECRET = "whsec_" + base64.b64encode(b"a secret of the tests, 32 bytes.").decode()


@dataclass(frozen=True, slots=True)
class Posted:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    def is_signed(self, secret: str = SECRET) -> bool:
        """By the rules of Standard Webhooks, written anew."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        content = b".".join(
            [self.headers["webhook-id"].encode(), self.headers["webhook-timestamp"].encode(), self.body]
        )
        made = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return f"v1,{made}" in self.headers["webhook-signature"].split(" ")


class Receiver:
    """Answers as `reply` says: bytes at once or piece by piece, or None where it says nothing and holds the line."""

    def __init__(
        self,
        reply: Callable[[Posted], bytes | Iterator[bytes] | None] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.posted: list[Posted] = []
        self.reply = reply or (lambda _: self.status(204))
        self._context, self._open = context, list[socket.socket]()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._accept, daemon=True).start()

    @staticmethod
    def status(number: int, *headers: str) -> bytes:
        return "\r\n".join([f"HTTP/1.1 {number} Word", "content-length: 0", *headers, "", ""]).encode()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # who waits for a connection there keeps it open otherwise
        self._socket.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(made)
            threading.Thread(target=self._answer, args=(made,), daemon=True).start()

    def _answer(self, made: socket.socket) -> None:
        try:
            if self._context is not None:
                made = self._context.wrap_socket(made, server_side=True)
                self._open.append(made)
            posted = _read(made)
            if posted is None:
                made.close()
                return
            self.posted.append(posted)
            if (answer := self.reply(posted)) is not None:
                for piece in [answer] if isinstance(answer, bytes) else answer:
                    made.sendall(piece)
                made.close()
        except OSError:
            made.close()


def _read(made: socket.socket) -> Posted | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = made.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += made.recv(65536)
    return Posted(first.split(" ")[1], headers, body)
