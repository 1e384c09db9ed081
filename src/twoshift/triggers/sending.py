"""A POST to somebody else's server, inside a time, to an address that was looked at."""

from __future__ import annotations

import asyncio
import importlib
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from twoshift._version import __version__
from twoshift.policy.addresses import Target, is_public, target_of

__all__ = ["Resolve", "Sender", "Undelivered"]

_LIMIT_S = 15.0  # for all of it, whoever is slow
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
        self._context = context

    def load(self) -> None:
        """What the first call needs: a tenth of a second, which live requests would have to wait for later."""
        self._context = self._context or ssl.create_default_context()
        _ = self._httpx

    @cached_property
    def _httpx(self) -> Any:
        return importlib.import_module("httpx")

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; raises Undelivered, and InvalidInput where the URL may not be called."""
        self.load()
        until_s = time.monotonic() + self._limit_s
        target = target_of(url, self._private_too)
        addresses = self._addresses(target, until_s)
        try:
            return asyncio.run(self._posted(target, addresses, headers, body, until_s))
        except (TimeoutError, self._httpx.TimeoutException):
            raise Undelivered(f"no answer within {self._limit_s:g} s") from None
        except (self._httpx.ProtocolError, self._httpx.DecodingError):
            raise Undelivered("the reply is not valid HTTP") from None
        except self._httpx.TransportError as error:
            raise Undelivered(_no_connection(error)) from None

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
            found = answer.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            raise Undelivered(f"the host name {target.host} was not resolved in time") from None
        if not found:
            raise Undelivered(f"the host name {target.host} has no address")
        if not self._private_too and not all(is_public(each) for each in found):
            raise Undelivered(
                f"{target.host} is not a public address; `allow_private_webhooks = true` allows private addresses"
            )
        return found

    async def _posted(
        self, target: Target, addresses: Sequence[str], headers: Mapping[str, str], body: bytes, until_s: float
    ) -> int:
        """By the first address that takes a connection."""
        httpx = self._httpx
        given = {"host": target.authority, "user-agent": f"twoshift/{__version__}", "content-type": "application/json"}
        # The address is called as it was looked at; TLS and the server know the name
        extensions = {"sni_hostname": target.host, "target": target.path.encode()}
        async with (
            asyncio.timeout(until_s - time.monotonic()),
            httpx.AsyncClient(verify=self._context, trust_env=False) as client,
        ):
            for left in range(len(addresses), 0, -1):
                url = httpx.URL(scheme=target.scheme, host=addresses[-left], port=target.port, path="/")
                share_s = (until_s - time.monotonic()) / left  # one that is silent leaves time for the others
                request = client.build_request(
                    "POST",
                    url,
                    headers={**given, **headers},
                    content=body,
                    extensions=extensions,
                    timeout=httpx.Timeout(None, connect=share_s),
                )
                try:
                    reply = await client.send(request, stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    if left == 1 or _distrust(error) is not None:
                        raise
                    continue
                await reply.aclose()
                return reply.status_code
        raise TimeoutError


def _no_connection(error: BaseException) -> str:
    if (distrust := _distrust(error)) is not None:
        return f"the TLS certificate is not trusted ({distrust.verify_message})"
    said = next((each.strerror for each in _causes(error) if isinstance(each, OSError) and each.strerror), None)
    return f"the connection failed ({said or type(error).__name__})"


def _distrust(error: BaseException) -> ssl.SSLCertVerificationError | None:
    return next((each for each in _causes(error) if isinstance(each, ssl.SSLCertVerificationError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _resolved(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
