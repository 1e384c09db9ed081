"""A head that was read before is not parsed again, and nobody can tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sampling import examples

pytest.importorskip("httptools", reason="the serve extra is not installed")

from twoshift.serve.http.connection import Connection
from twoshift.serve.http.heads import Heads
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.peers import HttpLimits, Peers
from twoshift.serve.http.replies import Replies

ASKED = b"POST /v1/a HTTP/1.1\r\nhost: b\r\ncontent-length: %d\r\n%b\r\n%b"


def asked(body: bytes = b"", more: bytes = b"") -> bytes:
    return ASKED % (len(body), more, body)


class _Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, _name: str) -> Any:
        return ("127.0.0.1", 1)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    abort = write_eof = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class _Forgetful(Heads):
    """Nothing is known to it."""

    def learn(self, data: bytes, request: Request) -> None:
        pass


class _Counting(Heads):
    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def find(self, data: bytes) -> Any:
        found = super().find(data)
        self.found += found is not None
        return found


def read(heads: Heads, *connections: list[bytes]) -> list[tuple[list[Any], bytes, bool]]:
    """What each connection has asked for, what was written on it, and whether it was closed."""

    async def run() -> list[tuple[list[Any], bytes, bool]]:
        peers, told = Peers(HttpLimits(body_bytes=1 << 10), heads=heads), list[tuple[list[Any], bytes, bool]]()
        for pieces in connections:
            seen = list[Any]()

            async def handle(request: Request, seen: list[Any] = seen) -> Reply:
                seen.append((request.method, request.target, {**request.headers}, request.body, request.takes_chunks))
                return Reply(200, b"%d" % len(request.body))

            transport: Any = _Transport()
            replies = Replies(handle, lambda error: Reply(error.status, str(error).encode(), close=True))
            made = Connection(replies, peers)
            made.connection_made(transport)
            for piece in pieces:
                made.data_received(piece)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            told.append((seen, transport.written, transport.closed))
        return told

    return asyncio.run(run())


REQUESTS = st.sampled_from(
    [
        asked(b"body"),
        asked(b"BODY"),
        asked(b"\r\n\r\nGET /other HTTP/1.1\r\nhost: a\r\n\r\n"),
        asked(b"ab", b"connection: close\r\n"),
        asked(b"ab", b"expect: 100-continue\r\n"),
        asked(b"ab", b"content-encoding: gzip\r\n"),
        asked(b"x" * 1025),
        b"GET /v1/a HTTP/1.1\r\nhost: b\r\n\r\n",
        b"GET /v1/a HTTP/1.0\r\nhost: b\r\nconnection: keep-alive\r\n\r\n",
        b"HEAD /v1/a HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /v1/a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"POST /v1/a HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nab",
        b"\r\n",
        b"\r\n\r\n",
        b"\xff nonsense\r\n\r\n",
    ]
)


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    """Requests one after the other, as they are or cut and joined somewhere."""
    whole = draw(st.lists(REQUESTS, min_size=1, max_size=6))
    if draw(st.booleans()):
        return whole
    sent = b"".join(whole)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(sent) - 1)), max_size=5)))
    return [sent[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


@settings(max_examples=examples(400))
@given(st.lists(pieces(), min_size=1, max_size=4))
@example([[b"\r\n\r\n" + asked(b"ab")], [b"\r\n\r\n" + b"x" * len(asked(b"ab"))]])
@example([[asked(b"ab")], [asked(b"ab")[:-1], b"b"], [asked(b"ab") + asked(b"ab")], [asked(b"ab"), asked(b"ab")]])
@pytest.mark.slow
def test_requests_are_read_as_if_no_head_were_known(connections: list[list[bytes]]) -> None:
    connections = [*connections, *connections]  # those of the second half have been seen
    assert read(Heads(), *connections) == read(_Forgetful(), *connections)


def test_the_same_head_is_parsed_once() -> None:
    heads = _Counting()
    read(heads, [asked(b"ab"), asked(b"cd"), asked(b"ef")], [asked(b"gh")])
    assert heads.found == 3


@pytest.mark.parametrize("more", [b"connection: close\r\n", b"expect: 100-continue\r\n", b"content-encoding: gzip\r\n"])
def test_a_head_that_asks_for_more_is_parsed_each_time(more: bytes) -> None:
    heads = _Counting()
    read(heads, *[[asked(b"ab", more)]] * 3)
    assert heads.found == 0


def test_a_request_that_is_not_whole_is_read_on() -> None:
    (_, told) = read(Heads(), [asked(b"ab")], [asked(b"cd")[:-1], b"d", asked(b"ef")])
    assert [body for _, _, _, body, _ in told[0]] == [b"cd", b"ef"]


def test_empty_lines_between_requests_do_not_add_up() -> None:
    ((seen, written, closed),) = read(Heads(), [asked(b"ab"), b"\r\n" * 8000] * 4)
    assert (len(seen), written.count(b"HTTP/1.1 200"), closed) == (4, 4, False)


def test_what_is_remembered_is_bounded() -> None:
    heads = Heads()
    read(
        heads, [asked(b"", b"x: %d\r\n" % number) for number in range(3000)], [asked(b"", b"x: %b\r\n" % (b"y" * 4000))]
    )
    known = heads._known  # pyright: ignore[reportPrivateUsage]
    assert 0 < len(known) <= 1024
    assert max(map(len, known)) <= 2048


def test_a_request_over_the_limit_is_refused_though_its_like_was_read() -> None:
    (first, second) = read(Heads(), [asked(b"x" * 1024)], [asked(b"x" * 1025)])
    assert first[1].startswith(b"HTTP/1.1 200")
    assert second[1].startswith(b"HTTP/1.1 413")
