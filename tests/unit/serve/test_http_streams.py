"""Bodies that are read as they come, and replies that go out as they are taken."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

pytest.importorskip("httptools")

import uvloop

from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.peers import HeadDecisions, HttpLimits
from twoshift.serve.http.server import HttpServer
from waiting import until

WAIT_S = 20.0
PIECE = b"0123456789abcdef" * 4096


class Streaming:
    """/count counts a body, /stop reads none of it, /hold reads it when the gate opens, /pour pours 64 MB."""

    def __init__(self, limits: HttpLimits) -> None:
        self.read_bytes = self.poured = self.closed = self.cancelled = 0
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self.call(self._start(limits))

    async def _start(self, limits: HttpLimits) -> int:
        self.gate = asyncio.Event()
        decisions = HeadDecisions(streams=lambda method, _: method == "POST")
        self.server = HttpServer(self._handle, self._refused, limits, decisions, sweep_s=0.02)
        return await self.server.start("127.0.0.1", 0)

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _handle(self, request: Request) -> Reply:
        if request.path == "/pour":
            return Reply(200, stream=self._pour(), stream_bytes=1000 * len(PIECE))
        if request.path == "/stop" or request.stream is None:
            return Reply(200, b"none")
        size = 0
        try:
            if request.path == "/hold":
                await self.gate.wait()
            async for piece in request.stream:
                size += len(piece)
                self.read_bytes += len(piece)
        except HttpError as error:
            return self._refused(error)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Reply(200, b"%d" % size)

    async def _pour(self) -> AsyncGenerator[bytes]:
        try:
            for _ in range(1000):
                self.poured += 1
                yield PIECE
        finally:
            self.closed += 1

    @staticmethod
    async def turns(count: int) -> None:
        """Let its loop do what it has to do, so many times."""
        for _ in range(count):
            await asyncio.sleep(0)

    @staticmethod
    def _refused(error: HttpError) -> Reply:
        return Reply(error.status, str(error).encode(), close=True)

    def end(self) -> None:
        self.open_gate()
        self.call(self.server.drain(0.5))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open_gate(self) -> None:
        self._loop.call_soon_threadsafe(self.gate.set)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def asked(self, data: bytes) -> bytes:
        with self.connect() as made:
            made.sendall(data)
            made.shutdown(socket.SHUT_WR)
            return received(made)


def poured(made: socket.socket) -> int:
    """Bytes, until no more are taken."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 2000 * len(PIECE):
            sent += made.send(PIECE)
    return sent


def received(made: socket.socket) -> bytes:
    found = bytearray()  # bytes would be copied as a whole for each piece
    while piece := made.recv(1 << 16):
        found += piece
    return bytes(found)


def post(path: str, size: int, more: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{more}content-length: {size}\r\n\r\n".encode()


@pytest.fixture
def server() -> Iterator[Streaming]:
    made = Streaming(HttpLimits(body_bytes=1 << 20, body_s=WAIT_S))
    yield made
    made.end()


def test_a_streamed_body_may_be_larger_than_any_other_and_more_may_follow(server: Streaming) -> None:
    with server.connect() as made:
        made.sendall(post("/count", 40 * len(PIECE)))
        for _ in range(40):
            made.sendall(PIECE)
        made.sendall(post("/count", 3) + b"abc" + b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        replies = received(made)
    assert [part.partition(b"HTTP/")[0] for part in replies.split(b"\r\n\r\n")[1:]] == [b"2621440", b"3", b"none"]


def test_nothing_is_read_that_nobody_wants_yet(server: Streaming) -> None:
    with server.connect() as made:
        made.sendall(post("/hold", 2000 * len(PIECE)))
        made.settimeout(0.5)
        sent = poured(made)
        assert sent < 1000 * len(PIECE)  # of which most is in the kernel's hands
        server.open_gate()
        made.settimeout(WAIT_S)
        while sent < 2000 * len(PIECE):
            sent += made.send(PIECE[: 2000 * len(PIECE) - sent])
        assert b"131072000" in made.recv(1 << 16)


def test_a_body_that_is_not_read_ends_the_connection_and_the_reply_arrives(server: Streaming) -> None:
    with server.connect() as made:
        made.sendall(post("/stop", 1000 * len(PIECE)))
        for _ in range(20):
            made.sendall(PIECE)
        reply = received(made)
    assert reply.endswith(b"none")
    assert b"connection: close" in reply


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post("/count", 5, "content-encoding: gzip\r\n") + b"abcde", b"415"),
        (b"POST /count HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\nno\r\n", b"400"),
        (post("/count", 0), b"200"),
        (b"POST /count HTTP/1.1\r\nhost: x\r\n\r\n", b"200"),
        (b"POST /count HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", b"200"),
    ],
)
def test_a_streamed_body_is_as_its_headers_say_or_refused(server: Streaming, sent: bytes, status: bytes) -> None:
    with server.connect() as made:
        made.sendall(sent)
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 " + status)


def test_a_client_that_waits_to_be_told_is_told_to_go_on(server: Streaming) -> None:
    with server.connect() as made:
        made.sendall(post("/count", 3, "expect: 100-continue\r\n"))
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 100")
        made.sendall(b"abc")
        assert b" 200 " in made.recv(1 << 16)


def test_a_client_that_goes_ends_what_reads_and_what_pours(server: Streaming) -> None:
    with server.connect() as made:
        made.sendall(post("/count", 1 << 30) + PIECE)
        until(lambda: server.read_bytes > 0)
    until(lambda: server.cancelled == 1)
    with server.connect() as made:
        made.sendall(b"GET /pour HTTP/1.1\r\nhost: x\r\n\r\n")
        made.recv(100)
    until(lambda: server.closed == 1)
    assert server.poured < 1000


def test_a_reply_is_poured_no_faster_than_it_is_taken(server: Streaming) -> None:
    with server.connect() as made:
        made.sendall(b"GET /pour HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        seen = -1
        while seen != server.poured or not seen:  # until it rests
            seen = server.poured
            server.call(server.turns(100))
        assert seen < 1000
        assert received(made).partition(b"\r\n\r\n")[2] == PIECE * 1000
    assert server.closed == 1


def test_head_pours_nothing(server: Streaming) -> None:
    reply = server.asked(b"HEAD /pour HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert b"content-length: 65536000\r\n" in reply
    assert reply.endswith(b"\r\n\r\n")
    until(lambda: server.closed == 1)


def test_a_trickle_is_as_bad_as_silence() -> None:
    server = Streaming(HttpLimits(body_s=0.3))
    try:
        with server.connect() as made:
            made.sendall(post("/count", 1 << 20))
            made.settimeout(0.05)
            reply, end_s = b"", time.monotonic() + WAIT_S
            while not reply and time.monotonic() < end_s:
                made.sendall(b"x")
                try:
                    reply = made.recv(1 << 16)
                except TimeoutError:
                    continue
        assert b" 408 " in reply
    finally:
        server.end()
