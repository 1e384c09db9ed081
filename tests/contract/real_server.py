"""A server program of the tests' own, which can be killed and started again."""

from __future__ import annotations

import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence

from waiting import until

__all__ = ["RealServer", "free_port"]


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class RealServer(ABC):
    """Runs once it is made, with the same words each time."""

    def __init__(self, port: int, words: Sequence[str]) -> None:
        self._port, self._words = port, words
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._answers)

    def kill(self) -> None:
        """As a loss of power does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @abstractmethod
    def _answers(self) -> bool: ...
