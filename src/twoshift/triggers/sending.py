"""A POST to somebody else's server, inside a time, to an address that was looked at."""

from __future__ import annotations

import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from twoshift._version import __version__
from twoshift.policy.addresses import Target, is_public, target_of

__all__ = ["Resolve", "Sender", "Undelivered"]

_LIMIT_S = 15.0  # for all of it, whoever is slow
_MOST_BYTES = 16 << 10  # of the reply that are read
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_END = b"\r\n\r\n"
Resolve = Callable[[str, int], Sequence[str]]  # a name's addresses


class Undelivered(Exception):
    """Why not, in words that may be shown to who asked: nothing of a reply but its status."""


class Sender:
    """Any thread may call it. No proxy is asked, and no redirect followed."""

    def __init__(
        self,
        private_too: bool = False,
        resolve: Resolve | None = None,
        context: ssl.SSLContext | None = None,
        limit_s: float = _LIMIT_S,
    ) -> None:
        self._private_too, self._resolve, self._limit_s = private_too, resolve or _resolved, limit_s
        self._context = context or ssl.create_default_context()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; raises Undelivered, and InvalidInput where the URL may not be called."""
        until_s = time.monotonic() + self._limit_s
        target = target_of(url, self._private_too)
        try:
            with self._connected(target, self._addresses(target, until_s), until_s) as made:
                made.settimeout(_left_s(until_s))
                made.sendall(_request(target, headers, body))
                return _status(made, until_s)
        except TimeoutError:
            raise Undelivered(f"no answer within {self._limit_s:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise Undelivered(f"its certificate is not trusted ({error.verify_message})") from None
        except OSError as error:
            raise Undelivered(f"no connection ({error.strerror or type(error).__name__})") from None

    def _addresses(self, target: Target, until_s: float) -> Sequence[str]:
        """Every address of the name, each of them looked at; nobody resolves it again after that."""
        answer: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answer.put(self._resolve(target.host, target.port))
            except (OSError, UnicodeError):
                answer.put(())

        threading.Thread(target=ask, name="twoshift-resolve", daemon=True).start()
        try:
            found = answer.get(timeout=_left_s(until_s))
        except queue.Empty:
            raise Undelivered(f"the name {target.host} was not resolved in time") from None
        if not found:
            raise Undelivered(f"the name {target.host} has no address")
        if not self._private_too and not all(is_public(each) for each in found):
            raise Undelivered(f"{target.host} is not a public address: allow_private_webhooks = true allows it")
        return found

    def _connected(self, target: Target, addresses: Sequence[str], until_s: float) -> socket.socket:
        """To the first of these that answers, by TLS under the name where that is asked for."""
        last: OSError | None = None
        for number, address in enumerate(addresses):
            share_s = _left_s(until_s) / (len(addresses) - number)  # one that is silent leaves time for the others
            try:
                made = socket.create_connection((address, target.port), timeout=share_s)
            except OSError as error:
                last = error
                continue
            if target.scheme == "http":
                return made
            try:
                made.settimeout(_left_s(until_s))
                return self._context.wrap_socket(made, server_hostname=target.host)
            except BaseException:
                made.close()
                raise
        raise last or TimeoutError


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    sent = {
        "host": target.authority,
        "user-agent": f"twoshift/{__version__}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **headers,
    }
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join(lines).encode("ascii") + _END + body


def _status(made: socket.socket, until_s: float) -> int:
    """Of the last word: those before it say that there is more to come."""
    seen = b""
    while len(seen) < _MOST_BYTES:
        made.settimeout(_left_s(until_s))
        piece = made.recv(4096)
        seen += piece
        while _END in seen and seen.startswith(b"HTTP/1.1 1"):
            seen = seen.partition(_END)[2]
        found = _STATUS.match(seen)
        if found is not None and not found[1].startswith(b"1"):
            return int(found[1])
        if not piece or (len(seen) > 16 and found is None):
            break
    raise Undelivered("its reply is not HTTP")


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _resolved(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
