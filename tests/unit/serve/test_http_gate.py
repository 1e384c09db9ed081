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
        assert server.host.policy.inside == 0
        assert server.said_to(LAST).startswith(b"HTTP/1.1 200 ")
        server.open_gate()
        server.until(lambda: len(server.asked) == 7)
    assert all(each.visit is not None for each in server.asked[1:])
    server.until(lambda: server.host.policy.inside == server.host.policy.waiting == 0)


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
    assert server.host.policy.inside == 0
