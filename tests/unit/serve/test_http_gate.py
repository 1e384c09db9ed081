"""Who is let in by the gate has a place in the host's accounts, and only for as long as somebody works for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

from tried_server import TriedServer, statuses

from twoshift.endpoints.known import told_openai
from twoshift.serve.host import Host
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.gate import Gate
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.peers import HeadDecisions, HttpLimits
from twoshift.serve.http.server import HttpServer
from twoshift.serve.keys import Access, Keys

ASKED = b"POST /asked HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nx-request-timeout-ms: 60000\r\n\r\n{}"
LAST = ASKED.replace(b"host: a", b"host: a\r\nconnection: close")


class Nothing:
    """No models: only the host is asked."""

    def model_of(self, _name: str | None) -> None:
        return None

    def timeout_s(self, _model: object) -> float:
        return 60.0


class GatedServer(TriedServer):
    """/asked is gated; /slow is not, and waits until the gate of the tests is open."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.app = App(told_openai, Keys({}))
        self.app.add("POST", "/asked", self._answered, told_openai, needs=Access.SERVE, kind=RouteKind.GATED)
        self.app.add("GET", "/slow", self._slow, told_openai, needs=Access.SERVE)

    def made(self, limits: HttpLimits) -> HttpServer:
        decisions = HeadDecisions(self.app.admit, gate=Gate(self.app, self.host, cast("Any", Nothing())))
        return HttpServer(self.app.handle, self.app.refused, limits, decisions, sweep_s=0.02)

    async def _answered(self, exchange: Exchange) -> Reply:
        self.asked.append(exchange.request)
        return Reply(200, b"")

    async def _slow(self, exchange: Exchange) -> Reply:
        self.asked.append(exchange.request)
        await self._gate.wait()
        return Reply(200, b"")


@pytest.fixture
def server() -> Iterator[GatedServer]:
    made = GatedServer()
    made.start(HttpLimits())
    yield made
    made.end()


def test_requests_that_wait_for_others_of_their_connection_hold_no_place(server: GatedServer) -> None:
    with server.connection() as peer:
        peer.sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n" + 5 * ASKED)
        server.until(lambda: len(server.asked) == 1)
        (open_,) = server.server.peers.open
        server.until(lambda: len(open_._waiting) == 5)
        assert server.host.policy.backlog.inside == 0
        assert server.said_to(LAST).startswith(b"HTTP/1.1 200 ")
        server.open_gate()
        server.until(lambda: len(server.asked) == 7)
    assert all(each.visit is not None for each in server.asked[1:])
    server.until(lambda: server.host.policy.backlog.inside == server.host.policy.backlog.waiting == 0)


def test_a_request_that_waited_for_others_too_long_is_refused_in_its_turn(server: GatedServer) -> None:
    late = ASKED.replace(b"60000", b"1")
    with server.connection() as peer:
        peer.sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n" + late + LAST)
        server.until(lambda: len(server.asked) == 1)
        (open_,) = server.server.peers.open
        server.until(lambda: len(open_._waiting) == 2)
        open_._waiting[0].arrived_s -= 1.0
        server.open_gate()
        found = b""
        while data := peer.recv(1 << 16):
            found += data
    assert statuses(found) == [200, 503, 200]
    assert server.host.policy.backlog.inside == 0


def busy(host: Host) -> None:
    """Nobody else is let in, and refusals wait for two seconds at the most."""
    host.policy.before.observed(0, 100.0)
    host.policy.admitted(0)
    host.policy.refusal.observed(0, 1.0)
    host.policy.refuse_in_s(0.0)


def test_the_last_refusal_of_a_connection_says_that_it_is_the_last(server: GatedServer) -> None:
    busy(server.host)
    refused = server.said_to(LAST)
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"connection: close\r\n" in refused
    with server.connection() as peer:
        peer.sendall(ASKED)
        assert b"connection:" not in peer.recv(1 << 16)


def test_nobody_is_told_to_go_on_before_the_refusal_that_is_due_first(server: GatedServer) -> None:
    busy(server.host)
    expects = LAST.replace(b"content-length: 2", b"content-length: 2\r\nexpect: 100-continue")
    head, body = expects[:-2], expects[-2:]
    with server.connection() as peer:
        peer.sendall(ASKED)
        peer.sendall(ASKED)
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        server.until(lambda: any(each._is_held for each in server.server.peers.open))
        peer.sendall(head)
        server.until(lambda: any(each._reading.is_amid for each in server.server.peers.open))
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 503 "), "and no 100 before it"
        peer.sendall(body)
