"""Many more clients than a server can answer in time, who ask again at once: each is told, and nobody is hung up on.

The short form of bench/serve_overload.py, which measures the rest.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import WAIT_S, Got, Server

pytestmark = pytest.mark.slow
CLIENTS, ROWS, STORM_S = 200, 32, 2.0
SLO_MS = "20"  # nobody answers 200 x 32 rows in it
PATIENT = {"x_request_timeout_ms": "60000"}
TEXTS = [f"text number {k}" for k in range(ROWS)]


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two replicas"])
def server(request: pytest.FixtureRequest, home: Path) -> Iterator[Server]:
    made = Server(home, f"{home / 'models.py'}:Embed", "--slo-ms", SLO_MS, "--replicas", str(request.param))
    yield made
    made.end()


class Client:
    """A connection that stays open, and every reply to it."""

    def __init__(self, server: Server) -> None:
        self._server, self.replies = server, list[Got]()

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._server.host, self._server.port)

    async def ask(self, method: str, path: str, body: bytes = b"") -> Got:
        """Raises where the server closes the connection, or never replies."""
        head = f"{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        async with asyncio.timeout(WAIT_S):
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            told = await self._reader.readexactly(int(headers["content-length"]))
        return Got(int(first.split()[1]), headers, told)

    async def storm(self, until_s: float) -> None:
        """Asks again as soon as there is a reply, whatever it is."""
        body = json.dumps({"model": "Embed", "input": TEXTS}).encode()
        while time.monotonic() < until_s:
            self.replies.append(await self.ask("POST", "/v1/embeddings", body))

    def close(self) -> None:
        self._writer.close()


async def stormed(server: Server) -> tuple[list[Got], list[Got]]:
    """All replies, and what each connection answers afterwards."""
    clients = [Client(server) for _ in range(CLIENTS)]
    await asyncio.gather(*(client.open() for client in clients))
    until_s = time.monotonic() + STORM_S
    await asyncio.gather(*(client.storm(until_s) for client in clients))
    after = [await client.ask("GET", "/healthz") for client in clients]
    for client in clients:
        client.close()
    return [got for client in clients for got in client.replies], after


def test_clients_that_retry_at_once_are_answered_or_refused_on_connections_that_stay_open(server: Server) -> None:
    replies, after = asyncio.run(stormed(server))
    by_status: dict[int, list[Any]] = {}
    for got in replies:
        by_status.setdefault(got.status, []).append(got)
    assert {200, 503} <= by_status.keys() <= {200, 503, 504}, {status: len(each) for status, each in by_status.items()}
    assert {len(got.json()["data"]) for got in by_status[200]} == {ROWS}
    for got in by_status[503]:
        assert int(got.headers["retry-after"]) >= 1
        assert int(got.headers["retry-after-ms"]) >= 1
    assert len({got.headers["retry-after-ms"] for got in by_status[503]}) > 1  # not all in the same moment
    assert {got.status for got in after} == {200}
    assert server.embed("Embed", TEXTS, **PATIENT).status == 200
