"""HTTP as it should be, as it is allowed to be, and as an attacker writes it."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

from tried_server import BIG, TriedServer, everything, parted, statuses

from twoshift.serve.http.peers import HttpLimits

END = b"connection: close\r\n\r\n"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, and no time
LIMITS = HttpLimits(body_bytes=1 << 20, bodies_bytes=2 << 20, half_closed_s=0.5)


@pytest.fixture(scope="module")
def server() -> Iterator[TriedServer]:
    made = TriedServer()
    made.start(LIMITS)
    yield made
    made.end()


def test_requests_of_one_connection_are_answered_in_their_order(server: TriedServer) -> None:
    sent = (
        b"".join(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(100))
        + b"GET /last HTTP/1.1\r\nhost: a\r\n"
        + END
    )
    replies = parted(server.said_to(sent))
    assert [body for _, _, body in replies] == [*(b"GET /%d 0" % number for number in range(100)), b"GET /last 0"]
    assert [headers.get("connection") for _, headers, _ in replies] == [None] * 100 + ["close"]


def test_a_request_may_come_byte_by_byte(server: TriedServer) -> None:
    sent = b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n" + END + b"abc"
    assert parted(server.said_to(*(bytes([each]) for each in sent)))[0][2] == b"POST /a 3"


def test_nothing_after_connection_close_is_read(server: TriedServer) -> None:
    before = len(server.asked)
    assert statuses(
        server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n" + END + b"GET /b HTTP/1.1\r\nhost: a\r\n\r\n")
    ) == [200]
    assert statuses(server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n" + END + b"\xff nonsense")) == [200]
    assert [request.target for request in server.asked[before:]] == [b"/a", b"/a"]


def test_clients_of_older_days_are_answered_and_closed(server: TriedServer) -> None:
    assert parted(server.said_to(b"GET /a HTTP/1.0\r\n\r\n"))[0][2] == b"GET /a 0"


@pytest.mark.parametrize("version", [b" HTTP/2.0", b" HTTP/0.9", b" HTTP/3.0", b" HTTP/1.2", b""])
@pytest.mark.parametrize("body", [b"", b"content-length: 2\r\n"])
def test_another_version_of_http_is_refused(server: TriedServer, version: bytes, body: bytes) -> None:
    assert statuses(server.said_to(b"GET /a" + version + b"\r\nhost: a\r\n" + body + b"\r\n", b"hi")) == [505]


@pytest.mark.parametrize("expectation", [b"200-ok", b"100-continue, 200-ok"])
@pytest.mark.parametrize("body", [b"", b"content-length: 2\r\n"])
def test_an_expectation_that_nobody_knows_is_refused(server: TriedServer, expectation: bytes, body: bytes) -> None:
    sent = b"GET /a HTTP/1.1\r\nhost: a\r\nexpect: " + expectation + b"\r\n" + body + b"\r\n"
    assert statuses(server.said_to(sent, b"hi")) == [417]


def test_head_has_the_length_and_no_body(server: TriedServer) -> None:
    ((status, headers, body),) = parted(server.said_to(b"HEAD /abc HTTP/1.1\r\nhost: a\r\n" + END), head=True)
    assert (status, headers["content-length"], body) == (200, "11", b"")


def test_a_client_that_waits_to_be_told_is_told_to_go_on(server: TriedServer) -> None:
    with server.connection() as made:
        made.sendall(b"POST /a HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n" + END)
        assert made.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        made.sendall(b"hi")
        assert parted(everything(made))[0][2] == b"POST /a 2"


def test_nobody_is_told_to_go_on_with_what_will_be_refused_or_out_of_turn(server: TriedServer) -> None:
    large = b"POST /a HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    assert statuses(server.said_to(large)) == [413]
    old = b"POST /a HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    assert statuses(server.said_to(old, b"hi")) == [200]
    second = b"POST /b HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n" + END
    assert statuses(server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n" + second, b"hi")) == [200, 200]


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_an_upgrade_is_left_out_and_the_connection_goes_on(server: TriedServer, upgrade: bytes) -> None:
    sent = b"GET /a HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: " + upgrade + b"\r\n\r\n"
    assert statuses(server.said_to(sent + b"GET /b HTTP/1.1\r\nhost: a\r\n" + END)) == [200, 200]
    assert statuses(server.said_to(sent + b"\x00\x01 whatever follows")) == [200, 400]


# As java.net.http.HttpClient of JDK 17 sends it
JAVA = (
    b"POST /java HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n%b\r\nHost: a\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
    b"User-Agent: Java-http-client/17\r\n\r\n"
)


@pytest.mark.parametrize("cut", [0, 30, -5, -2])
@pytest.mark.parametrize(
    ("length", "body"),
    [(b"Content-Length: 5", b"hello"), (b"Transfer-encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n")],
)
def test_a_body_that_comes_with_an_upgrade_is_read(server: TriedServer, length: bytes, body: bytes, cut: int) -> None:
    sent = JAVA % length + body
    with server.connection() as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):  # its connection stays open
            made.sendall(sent[:cut])
            made.sendall(sent[cut:])
            assert made.recv(1 << 16).endswith(b"POST /java 5")
    assert server.asked[-1].body == b"hello"
    assert b"upgrade" not in server.asked[-1].headers


def test_http_1_1_without_a_host_is_refused(server: TriedServer) -> None:
    assert statuses(server.said_to(b"GET /a HTTP/1.1\r\n" + END)) == [400]
    assert statuses(server.said_to(b"GET /a HTTP/1.0\r\n" + END)) == [200]


def test_a_client_that_ends_its_side_gets_its_replies(server: TriedServer) -> None:
    with server.connection() as made:
        made.sendall(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n")
        made.shutdown(socket.SHUT_WR)
        assert [body for _, _, body in parted(everything(made))] == [b"GET /a 0", b"GET /b 0"]
    with server.connection() as made:
        made.sendall(b"GET /big HTTP/1.1\r\nhost: a\r\n\r\n")
        made.shutdown(socket.SHUT_WR)
        assert len(parted(everything(made))[0][2]) == BIG
    with server.connection() as made:
        made.shutdown(socket.SHUT_WR)
        assert everything(made) == b""


@pytest.mark.parametrize("target", [b"http://a/b/c?d", b"https://[::1/b/c", b"http://a"])
def test_a_target_may_be_a_whole_address(server: TriedServer, target: bytes) -> None:
    assert statuses(server.said_to(b"GET " + target + b" HTTP/1.1\r\nhost: a\r\n" + END)) in ([200], [400])
    assert server.asked[-1].path in ("/b/c", "/")


SMUGGLED = b"GET /admin HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 0\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 0",
        b"content-length: 0\r\ncontent-length: 23",
        b"content-length: 0\r\ncontent-length: 0",
        b"content-length: 0, 23",
        b"content-length: +23",
        b"content-length: -1",
        b"content-length: 0x17",
        b"content-length: 99999999999999999999999999",
        b"content-length : 23",
        b" content-length: 23",
        b"content-length\r\n : 23",
        b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity",
        b"transfer-encoding: identity",
        b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        b"transfer-encoding:\x0bchunked",
        b"transfer\x00-encoding: chunked",
        b"transfer-encoding: chunked\n",
        b"host: a\r\nhost: b",
        b"x: a\rb",
        b"x: a\x00b",
        b": empty",
    ],
)
def test_heads_that_two_servers_read_differently_are_refused(server: TriedServer, head: bytes) -> None:
    before = len(server.asked)
    replies = server.said_to(b"POST /a HTTP/1.1\r\nhost: a\r\n" + head + b"\r\n\r\n" + SMUGGLED)
    assert statuses(replies)[-1] in (400, 501, 413)
    assert b"/admin" not in replies
    assert len(server.asked) == before


@pytest.mark.parametrize(
    "body",
    [
        b"5;" + b"a" * 1_000_000,
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"fffffffffffffffff\r\nhello",
        b"0\r\nx: " + b"a" * 1_000_000,
        b"0\r\n" + b"x: a\r\n" * 200,
    ],
)
def test_chunks_that_are_none_are_refused(server: TriedServer, body: bytes) -> None:
    replies = server.said_to(b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", body)
    assert statuses(replies)[-1] in (400, 431)


def test_a_body_may_come_in_chunks_and_trailers_decide_nothing(server: TriedServer) -> None:
    head = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n" + END
    sent = b"5;about=it\r\nhello\r\n6\r\n world\r\n0\r\nauthorization: Bearer x\r\n\r\n"
    assert parted(server.said_to(head, sent))[0][2] == b"POST /a 11"
    assert server.asked[-1].body == b"hello world"
    assert b"authorization" not in server.asked[-1].headers


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"get /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/3.0\r\n\r\n", 505),
        (b"GET /a HTTP/1.1\n\n", 400),
        (b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET /" + b"a" * 100_000, 431),
        (b"GET /a HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 100_000, 431),
        (b"GET /a HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 101 + b"\r\n", 431),
        (b"\r\n" * 40_000, 431),
        (b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1048577\r\n\r\n", 413),
        (b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-encoding: br\r\n\r\n", 415),
    ],
)
def test_what_is_no_request_is_told_so(server: TriedServer, sent: bytes, status: int) -> None:
    assert statuses(server.said_to(sent)) == [status]


def packed(content: bytes, **more: bytes) -> bytes:
    encoding = more.get("encoding", b"gzip")
    size = b"content-length: %d\r\ncontent-encoding: %b\r\n" % (len(content), encoding)
    return b"POST /a HTTP/1.1\r\nhost: a\r\n" + size + END + content


def test_a_packed_body_is_unpacked(server: TriedServer) -> None:
    content = b"hello " * 1000
    assert parted(server.said_to(packed(gzip.compress(content))))[0][2] == b"POST /a 6000"
    assert parted(server.said_to(packed(zlib.compress(content), encoding=b"deflate")))[0][2] == b"POST /a 6000"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (gzip.compress(b"a" * 1000, mtime=0)[:-9], 400),
        (gzip.compress(b"a", mtime=0) + b"and more", 400),
        (b"not packed", 400),
    ],
)
def test_a_packed_body_that_cannot_be_unpacked_is_refused(server: TriedServer, content: bytes, status: int) -> None:
    assert statuses(server.said_to(packed(content))) == [status]


def test_a_packed_body_is_bounded_by_what_it_unpacks_to(server: TriedServer) -> None:
    large = gzip.compress(b"0" * (64 << 20))
    assert statuses(server.said_to(packed(large))) == [413]
    assert statuses(server.said_to(packed(gzip.compress(large)))) == [200]  # unpacked once, and small


def test_what_follows_a_packed_body_is_refused(server: TriedServer) -> None:
    head = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n"
    end = gzip.compress(b"a", mtime=0)
    with server.connection() as made:
        made.sendall(head + b"%x\r\n%b\r\n" % (len(end), end))
        made.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n0\r\n\r\n")
        assert statuses(everything(made)) == [400]


def test_a_refused_client_that_still_sends_can_read_why(server: TriedServer) -> None:
    with server.connection() as made:
        made.sendall(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 8388608\r\n\r\n")
        for _ in range(128):
            made.sendall(b"x" * 65536)
        assert statuses(everything(made)) == [413]


def test_large_bodies_share_a_room_and_small_ones_need_none(server: TriedServer) -> None:
    half = b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 700_000
    with server.connection() as first:
        first.sendall(half)
        server.until(lambda: server.server.peers.room.held_bytes > 600_000)
        assert statuses(server.said_to(half)) == [503]
        assert statuses(
            server.said_to(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n" + END + b"x" * 60_000)
        ) == [200]
        first.sendall(b"x" * 300_000)
        assert b" 200 OK" in first.recv(1 << 16)
        server.until(lambda: server.server.peers.room.held_bytes == 0)
        first.sendall(half)
        server.until(lambda: server.server.peers.room.held_bytes > 600_000)
    server.until(lambda: server.server.peers.room.held_bytes == 0)


@pytest.mark.parametrize("path", [b"/broken", b"/unwritable"])
def test_a_handler_that_fails_is_a_500_and_not_a_closed_connection(server: TriedServer, path: bytes) -> None:
    ((status, headers, body),) = parted(server.said_to(b"GET " + path + b" HTTP/1.1\r\nhost: a\r\n\r\n"))
    assert (status, headers["connection"]) == (500, "close")
    assert json.loads(body)["error"]["type"] == "internal_error"
    assert statuses(server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n" + END)) == [200]


PIECES = [
    b"GET", b"POST", b"HEAD", b"CONNECT", b" ", b"  ", b"/a", b"/big", b"/slow", b"*", b"http://x/y", b"?q=%00",
    b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\x00", b"\xff", b":", b"host: a",
    b"content-length: 5", b"content-length: 0", b"transfer-encoding: chunked", b"connection: close",
    b"connection: upgrade", b"upgrade: h2c", b"expect: 100-continue", b"content-encoding: gzip", b"5\r\nhello\r\n",
    b"0\r\n\r\n", b"hello", gzip.compress(b"a", mtime=0), b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello", b"x" * 70_000,
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.booleans())
@settings(max_examples=examples(300))
def test_whatever_is_sent_is_answered_or_ended_and_harms_nobody(
    server: TriedServer, pieces: list[bytes], reset: bool
) -> None:
    with server.connection() as made, contextlib.suppress(OSError):
        for piece in pieces:
            made.sendall(piece)
        if reset:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    assert statuses(server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n" + END)) == [200]
    assert [each for each in server.failures if "a handler that fails" not in repr(each)] == []


def test_more_requests_ahead_than_anybody_sends_are_refused(server: TriedServer) -> None:
    found = statuses(server.said_to(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n" * 2000))
    assert found[-1] == 503
    assert set(found[:-1]) == {200}
    assert len(found) < 2000


def test_a_client_that_hangs_up_ends_its_request(server: TriedServer) -> None:
    before = server.cancelled
    with server.connection() as made:
        made.sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        server.until(lambda: bool(server.asked) and server.asked[-1].target == b"/slow")
    server.until(lambda: server.cancelled == before + 1)


def test_a_reset_ends_the_request_too(server: TriedServer) -> None:
    before = server.cancelled
    with server.connection() as made:
        made.sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n")
        server.until(lambda: bool(server.asked) and server.asked[-1].target == b"/slow")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    server.until(lambda: server.cancelled == before + 1)
    assert server.asked[-1].target == b"/slow"  # what was sent ahead is not begun


def test_a_large_reply_is_whole(server: TriedServer) -> None:
    assert len(parted(server.said_to(b"GET /big HTTP/1.1\r\nhost: a\r\n" + END))[0][2]) == BIG
