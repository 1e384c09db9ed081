"""How connections come in where many come at once."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

import uvloop

from twoshift.serve.http.listener import Listener
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.server import HttpServer

MANY = 100


async def replies(_request: Any) -> Reply:
    return Reply(200)


def connected(port: int, count: int) -> list[socket.socket]:
    """By the system alone: the server's loop does not run meanwhile."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


def test_connections_that_wait_come_in_together_and_not_one_in_a_turn_of_the_loop() -> None:
    async def turns() -> int:
        server = HttpServer(replies, lambda error: Reply(error.status))
        clients = connected(await server.start("127.0.0.1", 0), MANY)
        taken = 0
        while server.connections < MANY:
            await asyncio.sleep(0)
            taken += 1
        for client in clients:
            client.close()
        await server.drain(5.0)
        return taken

    assert uvloop.run(turns()) < MANY / 2


def test_a_process_without_files_takes_connections_again_when_it_has_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("twoshift.serve.http.listener._REST_S", 0.0)

    class Poor(socket.socket):
        refused = 0

        def accept(self) -> Any:
            if not Poor.refused:
                Poor.refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def made() -> int:
        bound = Poor()
        bound.bind(("127.0.0.1", 0))
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Entered(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                came.set_result(None)
                transport.abort()

        async def enter(accepted: socket.socket) -> None:
            await asyncio.get_running_loop().connect_accepted_socket(Entered, accepted)

        listener = Listener(bound, enter)
        (client,) = connected(listener.port, 1)
        await came
        client.close()
        listener.close()
        return Poor.refused

    assert uvloop.run(made()) == 1
    assert "Too many open files" in caplog.text
