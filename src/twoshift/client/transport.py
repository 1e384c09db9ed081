"""Flows run over httpx: in the calling thread, or with asyncio. What is sent and retried is decided in calls.py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from twoshift._version import __version__
from twoshift.client.calls import ApiCall, ApiReply, Flow, Lost, Pause, steps
from twoshift.client.requests import read_chunk
from twoshift.client.tls import tls_context, tls_problem
from twoshift.client.values import Chunk
from twoshift.errors import InvalidInput, TryLater

__all__ = ["AsyncTransport", "Transport", "asynchronous", "asynchronous_stream", "blocking", "blocking_stream"]

P = ParamSpec("P")
T = TypeVar("T")
_CONNECT_S = 10.0
_PIECE_BYTES = 1 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _Options:
    """Where the server is, and how it is talked to."""

    def __init__(self, url: str | None, key: str | None, timeout_s: float, max_retries: int) -> None:
        self.url = _checked(url or os.environ.get("TWOSHIFT_SERVER", "").strip())
        self.max_retries = max_retries
        self.httpx = importlib.import_module("httpx")  # 0.13 s, which most commands do without
        key = key or os.environ.get("TWOSHIFT_KEY", "").strip()
        headers = {"user-agent": f"twoshift/{__version__}"} | ({"authorization": f"Bearer {key}"} if key else {})
        timeout = self.httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
        self.is_local = urlsplit(self.url).hostname in _LOOPBACK
        self.arguments: dict[str, Any] = {
            "base_url": self.url,
            "headers": headers,
            "timeout": timeout,
            "trust_env": not self.is_local,  # no proxy stands between a program and its own machine
            "verify": tls_context(self.url, self.httpx),
        }

    def built(self, client: Any, call: ApiCall[Any]) -> Any:
        """The request as httpx has it."""
        if call.upload is None:
            return client.build_request(call.method, call.path, content=call.body, headers=dict(call.headers))
        files = {"file": (call.upload.name, call.upload.file)}
        return client.build_request(call.method, call.path, data=dict(call.upload.fields), files=files)

    def lost(self, error: Exception) -> Lost:
        """An error of the connection that may pass; raises any other, and InvalidInput where TLS does not fit."""
        if not isinstance(error, self.httpx.TransportError):
            raise error
        is_cut = isinstance(error, (self.httpx.RemoteProtocolError, self.httpx.ReadError))
        if problem := tls_problem(self.url, error, is_cut):
            raise problem from error
        is_sent = not isinstance(error, (self.httpx.ConnectError, self.httpx.ConnectTimeout))
        return Lost(error, is_sent, self.url)


class Transport:
    """Runs flows in the calling thread; any thread may call it."""

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = 60.0, max_retries: int = 2
    ) -> None:
        """`url` is by default TWOSHIFT_SERVER, and `key` TWOSHIFT_KEY."""
        self._options = _Options(url, key, timeout_s, max_retries)
        self.url, self.is_local = self._options.url, self._options.is_local
        self._http = self._options.httpx.Client(**self._options.arguments)

    def run(self, work: ApiCall[T] | Flow[T]) -> T:
        """What it returns."""
        flow, answer = steps(work, self._options.max_retries), None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                return end.value
            answer = time.sleep(step.seconds) if isinstance(step, Pause) else self._sent(step)

    def chunks(self, opened: ApiReply) -> Iterator[Chunk]:
        """The pieces of a streamed answer."""
        try:
            for line in opened.stream.iter_lines():
                if (chunk := read_chunk(line)) is not None:
                    yield chunk
        except self._options.httpx.TransportError as error:
            raise _broke_off(error) from error
        finally:
            opened.stream.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _sent(self, call: ApiCall[Any]) -> ApiReply | Lost:
        try:
            response = self._http.send(self._options.built(self._http, call), stream=True)
            if call.streams and response.status_code < 400:
                return ApiReply(response.status_code, response.headers, stream=response)
            with contextlib.closing(response):
                if call.sink is None or response.status_code >= 400:
                    return ApiReply(response.status_code, response.headers, response.read())
                for piece in response.iter_bytes(_PIECE_BYTES):
                    call.sink(piece)
            return ApiReply(response.status_code, response.headers)
        except Exception as error:
            return self._options.lost(error)


class AsyncTransport:
    """Runs flows with asyncio."""

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = 60.0, max_retries: int = 2
    ) -> None:
        """`url` is by default TWOSHIFT_SERVER, and `key` TWOSHIFT_KEY."""
        self._options = _Options(url, key, timeout_s, max_retries)
        self.url, self._http = self._options.url, self._options.httpx.AsyncClient(**self._options.arguments)

    async def run(self, work: ApiCall[T] | Flow[T]) -> T:
        """What it returns."""
        flow, answer = steps(work, self._options.max_retries), None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                return end.value
            answer = await (asyncio.sleep(step.seconds) if isinstance(step, Pause) else self._sent(step))

    async def chunks(self, opened: ApiReply) -> AsyncIterator[Chunk]:
        """The pieces of a streamed answer."""
        try:
            async for line in opened.stream.aiter_lines():
                if (chunk := read_chunk(line)) is not None:
                    yield chunk
        except self._options.httpx.TransportError as error:
            raise _broke_off(error) from error
        finally:
            await opened.stream.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _sent(self, call: ApiCall[Any]) -> ApiReply | Lost:
        try:
            response = await self._http.send(self._options.built(self._http, call), stream=True)
            if call.streams and response.status_code < 400:
                return ApiReply(response.status_code, response.headers, stream=response)
            async with contextlib.aclosing(response):
                if call.sink is None or response.status_code >= 400:
                    return ApiReply(response.status_code, response.headers, await response.aread())
                async for piece in response.aiter_bytes(_PIECE_BYTES):
                    call.sink(piece)
            return ApiReply(response.status_code, response.headers)
        except Exception as error:
            return await asyncio.to_thread(self._options.lost, error)  # it may look at the server


class Blocking:
    """What has methods that `blocking` made."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Asynchronous:
    """What has methods that `asynchronous` made."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport


def blocking(describe: Callable[P, ApiCall[T] | Flow[T]]) -> Callable[Concatenate[Blocking, P], T]:
    """The method that sends it and returns its result."""

    @functools.wraps(describe)
    def method(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transport.run(describe(*args, **kwargs))

    return method


def blocking_stream(describe: Callable[P, ApiCall[ApiReply]]) -> Callable[Concatenate[Blocking, P], Iterator[Chunk]]:
    """The method that sends it and returns its pieces."""

    @functools.wraps(describe)
    def method(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> Iterator[Chunk]:
        return self._transport.chunks(self._transport.run(describe(*args, **kwargs)))

    return method


def asynchronous(describe: Callable[P, ApiCall[T] | Flow[T]]) -> Callable[Concatenate[Asynchronous, P], Awaitable[T]]:
    """The coroutine method that sends it and returns its result."""

    @functools.wraps(describe)
    async def method(self: Asynchronous, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transport.run(describe(*args, **kwargs))

    return method


def asynchronous_stream(
    describe: Callable[P, ApiCall[ApiReply]],
) -> Callable[Concatenate[Asynchronous, P], AsyncIterator[Chunk]]:
    """The method that sends it and gives its pieces to `async for`."""

    @functools.wraps(describe)
    async def method(self: Asynchronous, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Chunk]:
        async for chunk in self._transport.chunks(await self._transport.run(describe(*args, **kwargs))):
            yield chunk

    return method


def _broke_off(error: Exception) -> TryLater:
    return TryLater(f"the server closed the connection in the middle of its reply ({error})", 1.0)


def _checked(url: str) -> str:
    if not url:
        raise InvalidInput("url", None, "the URL of a running server, or the variable TWOSHIFT_SERVER with this URL")
    full = url if "://" in url else f"http://{url}"
    parsed = urlsplit(full)
    try:
        is_usable = parsed.scheme in ("http", "https") and bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidInput("url", url, "an http:// or https:// URL, such as http://127.0.0.1:8000")
    return full.rstrip("/")
