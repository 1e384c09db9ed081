"""Bodies that mean harm, against the running program: whoever sends them, another client gets all its answers."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from servers import Server, until
from user_models import written

from twoshift.serve.keys import digest_of

pytestmark = pytest.mark.slow
MODEL, ANSWERS, HOSTILE = "Embed", 30, 8


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip.compress(b" " * (63 << 20))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("httptools")
    home = tmp_path_factory.mktemp("home")
    keys = "".join(f'[keys.{name}]\nsha256 = "{digest_of(name)}"\n' for name in ("good", "bad"))
    config = home / "serve.toml"
    config.write_text(f'[models.{MODEL}]\nmodel = "{written(home)}:{MODEL}"\nslo_ms = 400\n{keys}')
    made = Server(home, "--config", str(config))
    yield made
    made.end()


def post(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *headers, "connection: close"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def going_on(server: Server, *sent: bytes) -> Iterator[Callable[[], int]]:
    """Clients that send these over and over; how many replies they have had."""
    over, replies = threading.Event(), list[bytes]()

    def client(data: bytes) -> None:
        while not over.is_set():
            with suppress(OSError), server.connect() as made:
                made.sendall(data)
                replies.append(made.recv(1 << 12)[:12])

    threads = [threading.Thread(target=client, args=(data,)) for data in sent]
    for thread in threads:
        thread.start()
    try:
        yield lambda: len(replies)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def answers(server: Server, texts: int = 1) -> list[int]:
    body = json.dumps({"model": MODEL, "input": ["a red fox"] * texts}).encode()
    headers = {"authorization": "Bearer good"}
    return [server.ask("POST", "/v1/embeddings", body, headers).status for _ in range(ANSWERS)]


def all_in_time(server: Server) -> bool:
    """Whether a round of requests is answered in time; who is held up is so in each, a stalled machine in one."""
    return any(answers(server) == [200] * ANSWERS for _ in range(3))


INFER = f"/v2/models/{MODEL}/infer"
TENSORS = ",".join(['{"name":"x","shape":[1],"datatype":"FP32","data":[1]}'] * 270_000)
KEY = "authorization: Bearer bad"


@pytest.mark.parametrize(
    ("method", "path", "key"),
    [
        ("POST", "/v1/embeddings", ()),
        ("POST", "/v1/nowhere", ()),
        ("POST", "/v1/embeddings", (KEY,)),
        ("GET", "/healthz", ()),
    ],
    ids=["without a key", "to an unknown path", "with another key", "to an open path"],
)
def test_packed_bodies_that_become_large_hold_up_nobody(
    server: Server, bomb: bytes, method: str, path: str, key: tuple[str, ...]
) -> None:
    sent = post(path, bomb, "content-encoding: gzip", *key, method=method)
    with going_on(server, *[sent] * HOSTILE) as replies:
        until(lambda: replies() > 0)
        assert all_in_time(server)


def test_a_hundred_thousand_tensors_hold_up_nobody(server: Server) -> None:
    sent = post(INFER, f'{{"inputs": [{TENSORS}]}}'.encode(), KEY)
    refused = server.raw(sent)
    assert refused.startswith(b"HTTP/1.1 413 ")
    assert b"270,000 tensors" in refused
    with going_on(server, sent, sent) as replies:
        until(lambda: replies() > 0)
        assert all_in_time(server)


@pytest.mark.parametrize("key", [(), (KEY,)], ids=["without a key", "with another key"])
def test_half_sent_bodies_leave_room(server: Server, key: tuple[str, ...]) -> None:
    half = post("/v1/embeddings", b"x" * (60 << 20), *key)[: 40 << 20]
    with ExitStack() as open_:
        for _ in range(HOSTILE):
            made = open_.enter_context(server.connect())
            with suppress(OSError):
                made.sendall(half)
        assert answers(server, texts=8000)[:3] == [413] * 3  # large, read whole, and too many rows
        assert all_in_time(server)


def test_a_slow_head_is_no_request(server: Server) -> None:
    with ExitStack() as open_:
        for _ in range(200):
            open_.enter_context(server.connect()).sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost")
        assert all_in_time(server)
        with socket.create_connection((server.host, server.port), timeout=120) as made:
            made.sendall(post("/v1/embeddings", b"{}", "authorization: Bearer good"))
            assert made.recv(1 << 12).startswith(b"HTTP/1.1 400 ")
