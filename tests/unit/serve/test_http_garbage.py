"""What is refused is let go at once: a server collects garbage rarely, and a body may be large."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

from tried_server import TriedServer, statuses

from twoshift.endpoints.faults import forget_frames
from twoshift.endpoints.known import told_openai
from twoshift.errors import TooLarge
from twoshift.serve.batch_desk import NoBatches
from twoshift.serve.deployments import Deployments
from twoshift.serve.front import add_faces
from twoshift.serve.http import blocking_calls
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.body import Body, Packed
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.peers import HttpLimits
from twoshift.serve.keys import Access, Keys
from twoshift.serve.service import Service


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what other tests have imported is looked through once
    gc.disable()
    yield
    gc.enable()


class Rows(list[int]):
    """That can be referred to weakly."""


def test_the_rows_of_a_request_that_fails_are_let_go() -> None:
    made = list[weakref.ref[Rows]]()

    async def fails(_exchange: Exchange) -> Reply:
        rows = Rows([1, 2, 3])
        made.append(weakref.ref(rows))
        error = TooLarge("input", 3, "fewer")
        raise error from error  # a frame that has its error, and an error that has itself

    app = App(told_openai, Keys({}))
    app.add("POST", "/a", fails, told_openai, needs=Access.OPEN)
    for _ in range(3):
        assert asyncio.run(app.handle(Request("POST", b"/a", {}, b"", 0.0))).status == 413
    assert [each() for each in made] == [None] * 3


def test_a_chain_of_errors_that_ends_in_itself_is_walked_once() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    forget_frames(first)
    assert first.__cause__ is second.__cause__ is None


def kept(kind: type) -> list[Any]:
    return [each for each in gc.get_objects() if type(each) is kind]


@pytest.mark.parametrize(
    ("head", "status"),
    [(b"content-length: 1000000", 503), (b"transfer-encoding: chunked", 413), (b"content-encoding: gzip", 400)],
)
def test_a_body_that_is_refused_is_let_go(head: bytes, status: int) -> None:
    server = TriedServer()
    server.start(HttpLimits(body_bytes=400_000 if status == 413 else 1 << 20, bodies_bytes=1))
    body = b"x" * 500_000
    sent = {503: body, 413: b"7a120\r\n" + body + b"\r\n0\r\n\r\n", 400: body}[status]
    length = b"content-length: 500000\r\n" if status == 400 else b""
    try:
        if status == 503:
            server.server.peers.room.take("another", 1_000_000)
            server.server.peers.room.take("third", 500_000)
        for _ in range(3):
            replies = server.said_to(b"POST /a HTTP/1.1\r\nhost: a\r\n" + length + head + b"\r\n\r\n", sent)
            assert statuses(replies) == [status]
        server.until(lambda: not (kept(Body) or kept(Packed)))
    finally:
        server.end()


def test_what_is_remembered_of_requests_is_bounded() -> None:
    async def done(_exchange: Exchange) -> Reply:
        return Reply(200)

    app = App(told_openai, Keys({}))
    app.add("GET", "/a/{name}", done, told_openai, needs=Access.OPEN)
    for number in range(3000):
        assert app.admit(Request("GET", b"/a/%d?b=%d" % (number, number), {}, b"", 0.0)).fault is None
        assert app.admit(Request("GET", b"/b/%d" % number, {}, b"", 0.0)).fault is not None
    assert len(app._found) <= 1024


def test_threads_that_wait_for_databases_and_disks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()

    class Counted(ThreadPoolExecutor):
        def __init__(self, threads: int, name: str) -> None:
            made.append(threads)
            super().__init__(threads, name)

    monkeypatch.setattr(blocking_calls, "ThreadPoolExecutor", Counted)
    none: Any = NoJobs("none here")
    services: Any = SimpleNamespace(
        jobs=none, streams=none, batches=NoBatches("-"), schedules=none, notifier=none, predictions=none
    )
    server: Any = SimpleNamespace(connections=0)
    usage: Any = SimpleNamespace()
    add_faces(App(told_openai, Keys({})), server, Service(Deployments()), services, usage, [])
    assert len(made) > 5
    assert sum(made) <= 56
