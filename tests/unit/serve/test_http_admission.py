"""A request is let in on its head: what is refused costs no room, and what is large holds up nobody."""

from __future__ import annotations

import gzip
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

from tried_server import TriedServer, everything, parted, statuses

from twoshift.endpoints.known import told_openai
from twoshift.errors import NotFound
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.body import BodyRoom
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.peers import HeadDecisions, HttpLimits
from twoshift.serve.http.server import HttpServer
from twoshift.serve.keys import Access, Caller, Keys, KeySettings, digest_of

LIMITS = HttpLimits(body_bytes=1 << 20, bodies_bytes=4 << 20)
MIB = 1 << 20


class AppServer(TriedServer):
    """An app with keys, and one without."""

    def __init__(self, keys: dict[str, KeySettings]) -> None:
        super().__init__()
        self.app = App(told_openai, Keys(keys))
        self.app.add("POST", "/size", self._size, told_openai, needs=Access.SERVE)
        self.app.add("POST", "/only/{name}", self._size, told_openai, needs=Access.SERVE, check=self._check)
        self.app.add("GET", "/open", self._size, told_openai, needs=Access.OPEN)
        self.app.add("POST", "/open", self._size, told_openai, needs=Access.OPEN)
        self.app.add("GET", "/one", self._size, told_openai, needs=Access.SERVE)
        self.app.add("DELETE", "/one", self._size, told_openai, needs=Access.SERVE)
        about = Operation("Takes nothing.", str, str)
        self.app.add("POST", "/one/cancel", self._size, told_openai, about, needs=Access.SERVE)
        self.threads = set[str]()

    def made(self, limits: HttpLimits) -> HttpServer:
        return HttpServer(self.app.handle, self.app.refused, limits, HeadDecisions(self.app.admit), sweep_s=0.02)

    async def _size(self, exchange: Exchange) -> Reply:
        self.asked.append(exchange.request)
        if exchange.request.header(b"x-wait") is not None:
            await self._gate.wait()
        return Reply(200, await exchange.read(self._written, exchange.request.body))

    def _written(self, body: bytes) -> bytes:
        self.threads.add(threading.current_thread().name)
        return b"%d" % len(body)

    @staticmethod
    def _check(matched: dict[str, str], _caller: Caller) -> None:
        if matched["name"] != "this":
            raise NotFound("name", matched["name"], "this")


def tried(keys: dict[str, KeySettings]) -> Iterator[AppServer]:
    made = AppServer(keys)
    made.start(LIMITS)
    yield made
    made.end()


@pytest.fixture
def server() -> Iterator[AppServer]:
    yield from tried({name: KeySettings(sha256=digest_of(name)) for name in ("one", "other", "third")})


@pytest.fixture
def open_server() -> Iterator[AppServer]:
    yield from tried({})


def head(
    path: str = "/size", key: str | None = None, length: int | None = None, *more: str, method: str = "POST"
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: a", *more]
    lines += [f"authorization: Bearer {key}"] if key else []
    lines += ["transfer-encoding: chunked" if length is None else f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [("/size", None, 401), ("/size", "none", 401), ("/nowhere", "one", 404), ("/only/that", "one", 404)],
)
@pytest.mark.parametrize("more", ["x-a: b", "content-encoding: gzip", "expect: 100-continue"])
def test_what_is_refused_is_answered_before_its_large_body_comes(
    server: AppServer, path: str, key: str | None, status: int, more: str
) -> None:
    for length in (900_000, None):
        with server.connection() as made:
            made.sendall(head(path, key, length, more))
            ((found, headers, body),) = parted(everything(made))
            assert (found, headers["connection"]) == (status, "close")
            assert json.loads(body)["error"]
    assert server.asked == []


def test_a_small_body_that_is_refused_is_not_kept_and_the_connection_goes_on(server: AppServer) -> None:
    with server.connection() as made:
        for _ in range(3):
            made.sendall(head(length=50_000) + b"x" * 20_000)
            made.sendall(b"x" * 30_000)
            assert b" 401 " in made.recv(1 << 16)
        made.sendall(head(key="one", length=5) + b"hello")
        assert made.recv(1 << 16).endswith(b"\r\n\r\n5")
    assert server.server.peers.room.held_bytes == 0


def test_bodies_without_a_key_take_no_room(server: AppServer) -> None:
    with ExitStack() as open_:
        for _ in range(50):
            made = open_.enter_context(server.connection())
            made.sendall(head(length=900_000) + b"x" * 100_000)
        assert server.server.peers.room.held_bytes == 0
        body = b"x" * 900_000
        assert statuses(server.said_to(head("/size", "one", len(body), "connection: close") + body)) == [200]


BODILESS = [("GET", "/open"), ("HEAD", "/open"), ("POST", "/open"), ("DELETE", "/one"), ("POST", "/one/cancel")]


@pytest.mark.parametrize(("method", "path"), BODILESS)
def test_a_body_that_no_route_reads_is_neither_kept_nor_unpacked(server: AppServer, method: str, path: str) -> None:
    bomb = gzip.compress(b" " * MIB)
    with server.connection() as made:
        for _ in range(2):  # the connection goes on
            made.sendall(head(path, "one", len(bomb), "content-encoding: gzip", method=method) + bomb)
            assert made.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert [(bytes(each.body), each.packed, each.large) for each in server.asked] == [(b"", None, None)] * 2
    assert server.server.peers.room.held_bytes == 0


@pytest.mark.parametrize(("method", "path"), BODILESS)
@pytest.mark.parametrize("length", [70_000, None], ids=["announced", "in chunks"])
def test_a_large_body_that_no_route_reads_is_refused(
    server: AppServer, method: str, path: str, length: int | None
) -> None:
    sent = b"" if length else b"%x\r\n%b\r\n" % (70_000, b"x" * 70_000)
    with server.connection() as made:
        made.sendall(head(path, "one", length, method=method) + sent)
        ((found, headers, body),) = parted(everything(made))
    assert (found, headers["connection"]) == (413, "close")
    assert "65,536 bytes" in json.loads(body)["error"]["message"]
    assert server.asked == []


def half_sent(server: AppServer, open_: ExitStack, key: str | None, count: int) -> list[socket.socket]:
    made = [open_.enter_context(server.connection()) for _ in range(count)]
    for each in made:
        each.sendall(head(key=key, length=1_000_000) + b"x" * 900_000)
    return made


def test_one_client_cannot_take_the_room_of_all(server: AppServer) -> None:
    body = b"x" * 900_000
    with ExitStack() as open_:
        held = half_sent(server, open_, "one", 5)
        server.until(lambda: server.server.peers.room.held_bytes > 1_500_000)
        assert any(b" 503 " in each.recv(1 << 16) for each in _readable(held))
        for key in ("other", "third"):
            assert statuses(server.said_to(head("/size", key, len(body), "connection: close") + body)) == [200]
    server.until(lambda: server.server.peers.room.held_bytes == 0)


@pytest.mark.parametrize("begin", [b"content-length: 99999999\r\n", b"content-length: x\r\n", b"a: b\r\n" * 200])
def test_what_cannot_be_read_is_told_as_its_path_tells_errors(server: AppServer, begin: bytes) -> None:
    server.app.tell_below("/v2", lambda fault: b"as /v2 has it: %d" % fault.status)
    with server.connection() as peer:
        peer.sendall(b"POST /v2/models/x/infer?a HTTP/1.1\r\nhost: x\r\n" + begin + b"\r\n")
        assert b"as /v2 has it: 4" in everything(peer)


def test_a_client_holds_as_much_as_it_leaves_for_others() -> None:
    room = BodyRoom(100)
    room.take("a", 50)
    with pytest.raises(HttpError, match="no memory"):
        room.take("a", 1)
    room.take("b", 25)
    room.take("c", 12)
    with pytest.raises(HttpError, match="no memory"):
        room.take("b", 1)
    for client, size in (("a", 50), ("b", 25), ("c", 12)):
        room.give(client, size)
    assert room.held_bytes == 0
    assert room._of_clients == {}


def packed(size: int, key: str | None = None) -> bytes:
    content = gzip.compress(b"0" * size)
    return head("/size", key, len(content), "content-encoding: gzip", "connection: close") + content


def test_a_body_that_unpacks_to_much_is_unpacked_and_read_in_a_thread(open_server: AppServer) -> None:
    assert parted(open_server.said_to(packed(MIB)))[0][::2] == (200, b"%d" % MIB)
    assert all(name.startswith("twoshift-bodies") for name in open_server.threads)
    open_server.threads.clear()
    assert parted(open_server.said_to(packed(60_000)))[0][::2] == (200, b"60000")
    assert not any(name.startswith("twoshift-bodies") for name in open_server.threads)
    assert statuses(open_server.said_to(packed(MIB + 1))) == [413]
    open_server.until(lambda: open_server.server.peers.room.held_bytes == 0)
    assert open_server.server.peers.large._turns == {}


def test_what_hardly_packs_needs_no_more_room_than_it_becomes(open_server: AppServer) -> None:
    content = gzip.compress(bytes(range(256)) * 4000, 0)  # stored as it is
    sent = head("/size", None, len(content), "content-encoding: gzip", "connection: close") + content
    assert parted(open_server.said_to(sent))[0][::2] == (200, b"1024000")


def test_unpacked_bodies_hold_room_until_they_are_answered(open_server: AppServer) -> None:
    content = gzip.compress(b"0" * MIB)
    sent = head("/size", None, len(content), "content-encoding: gzip", "x-wait: yes") + content
    with ExitStack() as open_:
        made = [open_.enter_context(open_server.connection()) for _ in range(3)]
        for each in made:
            each.sendall(sent)
        open_server.until(lambda: len(open_server.asked) == 2)
        assert b" 503 " in b"".join(each.recv(1 << 16) for each in _readable(made))
        open_server.open_gate()
    open_server.until(lambda: open_server.server.peers.room.held_bytes == 0)


def _readable(made: list[socket.socket]) -> list[socket.socket]:
    found, _, _ = select.select(made, [], [], 20)
    return found


def test_a_client_that_leaves_while_its_body_is_unpacked_leaves_nothing(open_server: AppServer) -> None:
    for _ in range(20):
        with open_server.connection() as made:
            made.sendall(packed(MIB))
    open_server.until(lambda: open_server.server.peers.room.held_bytes == 0)
    open_server.until(lambda: open_server.server.peers.large._turns == {})
    assert open_server.failures == []


def test_a_refused_head_keeps_no_error_with_its_frames(server: AppServer) -> None:
    from twoshift.serve.http.messages import Request

    def held(value: Any) -> bool:
        return isinstance(value, BaseException)

    admitted = server.app.admit(Request("POST", b"/size", {}, b"", 0.0))
    assert admitted.fault is not None
    assert not any(map(held, msgspec.structs.astuple(admitted)))
