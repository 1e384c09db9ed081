"""A NATS server of the tests' own, with JetStream, which can be ended and started again."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from real_server import RealServer, free_port

__all__ = ["RealNats"]


class RealNats(RealServer):
    """Runs once it is made; its messages lie in the folder."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("nats")
        beside = Path(sys.executable).parent / "nats-server"
        program = str(beside) if beside.exists() else shutil.which("nats-server")
        if program is None:
            pytest.skip("nats-server is not installed")
        port = free_port()
        super().__init__(port, [program, "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)])

    @property
    def server(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def url(self, subject: str) -> str:
        return f"{self.server}/{subject}"

    def make_stream(self, name: str, *subjects: str, **config: Any) -> None:
        async def make(js: Any) -> None:
            await js.add_stream(name=name, subjects=list(subjects), **config)

        self._with(make)

    def change_stream(self, name: str, *subjects: str, **config: Any) -> None:
        async def change(js: Any) -> None:
            await js.update_stream(name=name, subjects=list(subjects), **config)

        self._with(change)

    def put(self, subject: str, payloads: Sequence[bytes], ids: Sequence[str] = ()) -> None:
        """Messages, in order; with ids the broker drops those that it has."""

        async def publish(js: Any) -> None:
            for place, payload in enumerate(payloads):
                await js.publish(subject, payload, headers={"Nats-Msg-Id": ids[place]} if ids else None)

        self._with(publish)

    def read(self, subject: str) -> list[Any]:
        """All messages of a subject."""
        found: list[Any] = []

        async def look(js: Any) -> None:
            name = await js.find_stream_name_by_subject(subject)
            state = (await js.stream_info(name)).state
            for sequence in range(state.first_seq, state.last_seq + 1):
                found.append(await js.get_msg(name, sequence))

        self._with(look)
        return [message for message in found if message.subject == subject]

    def _with(self, work: Any) -> None:
        import nats

        async def run() -> None:
            client = await nats.connect(self.server)
            try:
                await work(client.jetstream())
            finally:
                await client.close()

        asyncio.run(run())

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1.0) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False
