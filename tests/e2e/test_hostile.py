"""Clients that mean harm, against the running program: none takes it down, none makes it grow without bound."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import Server, until
from user_models import written

pytestmark = pytest.mark.slow
MODEL = "Troubled"
IDLE = 4200  # more than a server has connections
GROWTH_BYTES = 256 << 20  # what all of this together may leave behind


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("httptools")
    home = tmp_path_factory.mktemp("home")
    made = Server(home, f"{written(home)}:{MODEL}", "--slo-ms", "60000", files=256)
    yield made
    made.end()


@pytest.fixture(scope="module")
def resident_bytes(server: Server) -> int:
    """After some ordinary requests, before all the others."""
    for _ in range(20):
        assert server.embed(MODEL, ["a text"] * 100).status == 200
    return server.resident_bytes()


@pytest.fixture(autouse=True)
def _unharmed(server: Server, resident_bytes: int) -> Iterator[None]:
    yield
    assert server.embed(MODEL, "a b").json()["data"][0]["embedding"] == [3.0, 1.0]
    assert server.ask("GET", "/readyz").status == 200
    assert server.counted("healthy", model=MODEL) == 1
    assert server.resident_bytes() < resident_bytes + GROWTH_BYTES
    assert "Traceback" not in server.said


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /v1/embeddings HTTP/1.1", b"host: a", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\nconnection: close\r\n\r\n" + body


def body_of(given: str) -> bytes:
    return json.dumps({"model": MODEL, "input": given}).encode()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post(b"\xff\xfe"), 400),
        (post(b"[" * 100_000), 400),
        (post(b'{"model": "Troubled", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
        (post(b'{"model": "Troubled", "input": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
        (post(b'{"model": "Troubled", "input": NaN}'), 400),
        (post(b'{"model": "Troubled", "input": "a", "dimensions": Infinity}'), 400),
        (post(b'{"model": "Troubled", "input": "\\ud800"}'), 400),
        (post(b'{"model": "Troubled", "input": [' + b"1," * 3_000_000 + b"1]}"), 400),
        (post(b'{"model": "Troubled", "input": [' + b"[1]," * 3_000_000 + b"[1]]}"), 413),
        (post(b'{"model": "Troubled", "input": "' + b"x" * 10_000_000 + b'"}'), 413),
        (post(b" " * 20_000_000), 413),
        (post(gzip.compress(body_of("a")), b"content-encoding: gzip"), 200),
        (post(body_of("a"), b"content-length: 3"), 400),
        (post(body_of("a"), b"transfer-encoding: chunked"), 400),
        (post(body_of("a"), b"x:" + b"y" * 100_000), 431),
        (post(body_of("a"), *[b"x: y"] * 200), 431),
        (b"GET /v1/models/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 404),
        (b"GET //healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 404),
        (b"GET /healthz%00 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 404),
        (b"GET http://elsewhere/healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 200),
        (b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 404),
        (b"GET /\xff\xfe HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", None),
        (b"CONNECT elsewhere:80 HTTP/1.1\r\nhost: a\r\n\r\n", 404),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_hostile_request_gets_an_answer_and_nothing_else(server: Server, sent: bytes, status: int | None) -> None:
    check_answer(server, sent, status)


def test_a_small_body_that_becomes_large_is_refused(server: Server) -> None:
    check_answer(server, post(gzip.compress(b"0" * (256 << 20)), b"content-encoding: gzip"), 413)


def check_answer(server: Server, sent: bytes, status: int | None) -> None:
    reply = server.raw(sent)
    assert reply.startswith(b"HTTP/1.1 ")
    assert status is None or int(reply.split()[1]) == status
    assert len(reply) < 2000
    assert b"x-request-id: " in reply
    assert b"server-timing: " in reply


def test_thousands_of_idle_connections_leave_room_for_a_client(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 200:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE + 200), hard))
    with ExitStack() as idle:
        for _ in range(IDLE):
            idle.enter_context(server.connect())
        for _ in range(20):
            assert server.embed(MODEL, "a b").status == 200
        assert server.counted("http_connections") == 4096
    until(lambda: server.counted("http_connections") < 10)


def test_slow_headers_and_half_bodies_hold_up_nobody(server: Server) -> None:
    half = b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 60000000\r\n\r\n" + b'{"model": "'
    with ExitStack() as open_:
        slow = [open_.enter_context(server.connect()) for _ in range(400)]
        for round_ in range(3):
            for number, each in enumerate(slow):
                each.sendall(
                    half if number % 2 and not round_ else b"GET /x HTTP/1.1\r\nhost: a\r\nx-" if not round_ else b"y"
                )
            assert server.embed(MODEL, "a b").status == 200


def test_large_half_bodies_share_a_bounded_room(server: Server, resident_bytes: int) -> None:
    head = b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 60000000\r\n\r\n"
    piece, refused = b"x" * (1 << 20), 0
    with ExitStack() as open_:
        for _ in range(10):
            made = open_.enter_context(server.connect())
            try:
                made.sendall(head)
                for _ in range(50):
                    made.sendall(piece)
            except OSError:
                refused += 1
                continue
            made.settimeout(0.2)
            try:
                refused += b" 503 " in made.recv(1 << 12)
            except TimeoutError:
                continue
        assert refused >= 4  # 500 MiB were sent, and there is room for half of it
        assert server.resident_bytes() < resident_bytes + (600 << 20)
        assert server.embed(MODEL, "a b").status == 200
    until(lambda: server.counted("http_connections") < 10)


def test_clients_that_never_read_their_replies_hold_up_nobody(server: Server) -> None:
    body = json.dumps({"model": MODEL, "input": ["a"] * 4000}).encode()
    asked = b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with ExitStack() as open_:
        for _ in range(6):
            made = open_.enter_context(server.connect())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.settimeout(0.1)
            try:
                made.sendall(asked * 10)
            except TimeoutError:
                continue  # it reads no more from who takes no replies
        assert server.embed(MODEL, "a b", x_request_timeout_ms="30000").status == 200


def test_clients_that_reset_cost_no_forward_pass_from_then_on(server: Server, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with server.connect() as first:
        first.sendall(post(body_of(f"sleep 8 {told}")))
        until(told.exists)
        before = server.counted("rows_total", lane="online")
        gone = [server.connect() for _ in range(20)]
        for each in gone:
            each.sendall(post(body_of("a b c")))
        until(lambda: server.counted("waiting_rows", lane="online") == len(gone))
        for each in gone:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        until(lambda: server.counted("waiting_rows", lane="online") == 0)
        assert b" 200 OK" in first.recv(1 << 16)
    assert server.counted("rows_total", lane="online") <= before + 1
    assert server.counted("requests_total", status="499") >= len(gone)


def test_what_is_sent_in_pieces_ahead_and_late_is_answered_in_order(server: Server) -> None:
    with server.connect() as made:
        for number in range(50):
            body = body_of("x" * (number + 1))
            made.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        made.sendall(
            b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\nGET /never HTTP/1.1\r\nhost: a\r\n\r\n"
        )
        found = b""
        while data := made.recv(1 << 16):
            found += data
    assert [int(size) for size in _sizes(found)] == list(range(1, 51))
    assert b"never" not in found
    assert found.endswith(b'{"status":"alive"}')


def _sizes(replies: bytes) -> list[float]:
    return [float(each.split(b",")[0]) for each in replies.split(b'"embedding":[')[1:]]
