"""Connections whose requests another process answers: they go there whole, with what was read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools")

from tried_server import TriedServer, everything, parted, statuses

from twoshift.serve.http.handover import Handover, HandoverListener
from twoshift.serve.http.peers import HttpLimits
from twoshift.serve.http.server import HttpServer, SharedPort

HERE = b"POST /here HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc"
THERE = b"GET /there HTTP/1.1\r\nhost: a\r\n\r\n"
LAST = b"POST /here HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Main(TriedServer):
    """Takes what the front does not answer."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def _start(self, limits: HttpLimits) -> None:
        await super()._start(limits)
        self.listener = HandoverListener(self._path, self.server.take_over)

    async def close_listener(self) -> None:
        self.listener.close()


class Front(TriedServer):
    """Answers what is posted to it below /here and /slow."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def made(self, limits: HttpLimits) -> HttpServer:
        handover = Handover(self._path, lambda method, target: method == "POST" and target in (b"/here", b"/slow"))
        return HttpServer(self._handle, self._refused, limits, shared=SharedPort(handover), sweep_s=0.02)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Front, Main]]:
    main, front = Main(tmp_path / "way"), Front(tmp_path / "way")
    main.start(HttpLimits())
    front.start(HttpLimits())
    yield front, main
    front.end()
    main.call(main.close_listener)
    main.end()
    assert not front.failures
    assert not main.failures


def test_a_request_for_the_main_process_is_answered_there_and_the_connection_closed(both: tuple[Front, Main]) -> None:
    front, main = both
    ((status, headers, body),) = parted(front.said_to(THERE))
    assert (status, headers["connection"], body) == (200, "close", b"GET /there 0")
    assert [each.path for each in main.asked] == ["/there"]
    assert not front.asked


def test_a_front_answers_its_own_requests_before_it_hands_over(both: tuple[Front, Main]) -> None:
    front, main = both
    with front.connection() as made:
        made.sendall(HERE)
        first = made.recv(1 << 16)
        made.sendall(HERE)  # by now its head is known
        second = made.recv(1 << 16)
        made.sendall(THERE)
        third = everything(made)
    assert statuses(first + second + third) == [200, 200, 200]
    assert len(front.asked) == 2
    assert len(main.asked) == 1


def test_a_request_that_waits_for_another_reply_is_handed_over_after_it(both: tuple[Front, Main]) -> None:
    front, main = both
    with front.connection() as made:
        made.sendall(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
        front.until(lambda: front.asked)
        made.sendall(THERE)
        front.open_gate()
        replies = everything(made)
    assert [body for _, _, body in parted(replies)] == [b"POST /slow 0", b"GET /there 0"]
    assert len(main.asked) == 1


@pytest.mark.parametrize("cut", [1, 5, 12, 20, 30])
def test_a_head_in_pieces_is_handed_over_whole(both: tuple[Front, Main], cut: int) -> None:
    front, main = both
    with front.connection() as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.sendall(THERE[:cut])
        front.until(lambda: front.server.connections or main.server.connections)
        made.sendall(THERE[cut:])
        assert statuses(everything(made)) == [200]


def test_a_head_of_the_fronts_own_may_come_in_pieces(both: tuple[Front, Main]) -> None:
    front, main = both
    with front.connection() as made:
        for at in range(0, len(LAST), 7):
            made.sendall(LAST[at : at + 7])
        assert statuses(everything(made)) == [200]
    assert not main.asked


def test_a_body_that_is_still_coming_goes_to_the_main_process(both: tuple[Front, Main]) -> None:
    front, main = both
    with front.connection() as made:
        made.sendall(b"POST /files HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 10)
        main.until(lambda: main.server.connections == 1)
        made.sendall(b"x" * 999_990)
        ((status, _, body),) = parted(everything(made))
    assert (status, body) == (200, b"POST /files 1000000")


NOT_HTTP = [b"what is this\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0GET / HTTP/1.1\r\n\r\n", b"x" * (64 << 10)]


@pytest.mark.parametrize("data", NOT_HTTP)
def test_what_is_no_request_is_told_by_the_front(both: tuple[Front, Main], data: bytes) -> None:
    front, main = both
    assert statuses(front.said_to(data)) == [400]
    assert not main.asked


def test_empty_lines_without_end_are_refused(both: tuple[Front, Main]) -> None:
    front, _ = both
    assert statuses(front.said_to(*([b"\r\n" * 4096] * 8))) == [431]


def test_a_line_that_never_ends_is_told_so(tmp_path: Path) -> None:
    front = Front(tmp_path / "way")
    front.start(HttpLimits(head_s=0.1))
    try:
        assert statuses(front.said_to(b"GET /there")) == [408]
    finally:
        front.end()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_head_that_was_learned_is_handed_over_each_time(both: tuple[Front, Main], times: int) -> None:
    front, main = both
    for _ in range(times):
        assert statuses(front.said_to(THERE.replace(b"GET ", b"GET  "))) == [200]
    assert len(main.asked) == times


def test_an_empty_line_between_known_requests_changes_nothing(both: tuple[Front, Main]) -> None:
    front, _ = both
    with front.connection() as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for data in (HERE, HERE, b"\r\n" + HERE):
            made.sendall(data)
            assert statuses(made.recv(1 << 16)) == [200]
        made.sendall(b"\r\n")
        front.until(lambda: all(each._departure.data for each in front.server.peers.open))
        made.sendall(HERE)
        assert statuses(made.recv(1 << 16)) == [200]


def test_requests_sent_ahead_in_one_piece_are_answered_in_order_by_both(both: tuple[Front, Main]) -> None:
    front, main = both
    replies = parted(front.said_to(HERE + THERE))
    assert [body for _, _, body in replies] == [b"POST /here 3", b"GET /there 0"]
    assert main.asked[0].header(b"host") == "a"


def test_a_body_sent_ahead_in_one_piece_for_the_main_process_ends_the_connection(both: tuple[Front, Main]) -> None:
    front, main = both
    assert statuses(front.said_to(HERE + THERE.replace(b"GET", b"PUT")[:-2] + b"content-length: 1\r\n\r\nx")) == [200]
    assert not main.asked


def test_where_the_main_process_is_gone_the_client_sees_the_end_of_its_connection(both: tuple[Front, Main]) -> None:
    front, main = both
    main.call(main.close_listener)
    assert front.said_to(THERE) == b""
    assert statuses(front.said_to(LAST)) == [200]
