"""Clients that take their time: each has some, and none has it all."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

from tried_server import BIG, TriedServer, everything, parted, statuses

from twoshift.serve.http.peers import HttpLimits

LIMITS = HttpLimits(
    head_s=0.3, body_s=0.3, whole_body_s=0.9, idle_s=0.3, linger_s=0.3, half_closed_s=0.3, connections=20
)
END = b"connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[TriedServer]:
    made = TriedServer()
    made.start(LIMITS)
    yield made
    made.end()


def poured(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65536)


def trickled(connection: socket.socket, data: bytes) -> bytes:
    """What the server says while it gets a byte now and then."""
    connection.settimeout(0.05)
    for each in data:
        try:
            connection.sendall(bytes([each]))
        except OSError:  # the end of its patience
            break
        try:
            if found := connection.recv(1 << 16):
                return found
            break
        except TimeoutError:
            continue
    return b""


def test_slow_headers_have_a_time_as_a_whole(server: TriedServer) -> None:
    with server.connection() as made:
        assert statuses(trickled(made, b"GET /a HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 1000)) == [408]


def test_a_slow_body_has_a_time_between_its_pieces_and_as_a_whole(server: TriedServer) -> None:
    head = b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"
    with server.connection() as made:
        made.sendall(head + b"x")
        assert statuses(everything(made)) == [408]
    with server.connection() as made:
        made.sendall(head)
        assert statuses(trickled(made, b"x" * 999)) == [408]


def test_silence_is_ended_without_a_word(server: TriedServer) -> None:
    assert server.said_to() == b""
    with server.connection() as made:
        made.sendall(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n")
        assert statuses(everything(made)) == [200]  # and closed once it was idle for too long


def test_a_connection_of_a_pool_that_is_not_used_yet_has_the_time_of_an_idle_one() -> None:
    made = TriedServer()
    made.start(HttpLimits(head_s=0.05, idle_s=600.0))
    try:
        with made.connection() as unused, made.connection() as slow:
            slow.sendall(b"GET /a HTTP/1.1\r\n")
            assert statuses(everything(slow)) == [408]  # by a sweep that came later than the other's first 0.05 s
            unused.sendall(b"GET /a HTTP/1.1\r\nhost: a\r\n" + END)
            assert statuses(everything(unused)) == [200]
    finally:
        made.end()


def test_a_client_that_never_reads_its_reply_is_let_go(server: TriedServer) -> None:
    for more in (b"\r\n", END):
        with server.connection() as made:
            made.sendall(b"GET /big HTTP/1.1\r\nhost: a\r\n" + more)
            server.until(lambda: server.server.connections == 1)
            server.until(lambda: server.server.connections == 0)


def test_a_client_that_reads_slowly_gets_it_all(server: TriedServer) -> None:
    found, longest_s = read_slowly(server)
    while longest_s > LIMITS.body_s / 2:  # the machine stalled, and the client took more time than it may
        found, longest_s = read_slowly(server)
    assert len(parted(found)[0][2]) == BIG


def read_slowly(server: TriedServer) -> tuple[bytes, float]:
    """The reply, read over 0.8 s with pauses within what is allowed, and the longest pause there was."""
    with server.connection() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        made.sendall(b"GET /big HTTP/1.1\r\nhost: a\r\n" + END)
        found, last_s, longest_s = bytearray(), time.monotonic(), 0.0
        while data := made.recv(1 << 19):
            found += data
            if len(found) % (1 << 20) < len(data):
                time.sleep(0.05)
            now_s = time.monotonic()
            last_s, longest_s = now_s, max(longest_s, now_s - last_s)
        return bytes(found), max(longest_s, time.monotonic() - last_s)


def test_a_refused_client_that_never_stops_sending_is_let_go(server: TriedServer) -> None:
    with server.connection() as made:
        made.sendall(b"nonsense\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|pipe|Broken"):
            poured(made)
    server.until(lambda: server.server.connections == 0)


def test_connections_beyond_the_limit_are_told_to_come_back(server: TriedServer) -> None:
    with ExitStack() as open_:
        for _ in range(LIMITS.connections):
            open_.enter_context(server.connection()).sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        server.until(lambda: server.server.connections == LIMITS.connections)
        assert statuses(server.said_to()) == [503]
    server.until(lambda: server.server.connections == 0)
    assert statuses(server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n" + END)) == [200]


def test_a_request_that_is_worked_on_has_the_time_that_its_handler_gives_it(server: TriedServer) -> None:
    asked = [each.path for each in server.asked].count("/slow")
    with server.connection() as made:
        made.sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n" + END)
        server.until(lambda: [each.path for each in server.asked].count("/slow") > asked)
        with server.connection() as later:  # one that came later has used up its time
            later.sendall(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
            assert statuses(trickled(later, b"x" * 999)) == [408]
        server.open_gate()
        assert statuses(everything(made)) == [200]
