"""`twoshift` in a process of its own that need not import it first, which is most of what a start takes.

Only the imports are shared. What they do in a new process is proven where tests start the script itself (`PROGRAM`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from programs import PROGRAM, environment

__all__ = ["ForkedProgram"]

_SERVER = str(Path(__file__).with_name("fork_server.py"))


@functools.cache
def _control() -> socket.socket:
    """To the process that forks, one of this process."""
    ours, its = socket.socketpair()
    words = [sys.executable, _SERVER, str(its.fileno())]
    process = subprocess.Popen(words, env=environment(Path(os.devnull)), pass_fds=[its.fileno()])
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class ForkedProgram:
    """Started with these words; as much of `subprocess.Popen` as tests use, its standard error is a pipe."""

    @staticmethod
    def can_be(environment: Mapping[str, str]) -> bool:
        """Whether the process that forks has imported what a program would import in this environment."""
        usual = _usual()
        return all(usual.get(name) == value for name, value in environment.items() if name.startswith("PYTHON"))

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        error, its_error = os.pipe()
        told, its_told = os.pipe()
        given = {"program": PROGRAM, "words": words, "environment": dict(environment), "folder": str(Path.cwd())}
        try:
            socket.send_fds(_control(), [json.dumps(given).encode() + b"\n"], [1, its_error, its_told])
        finally:
            os.close(its_error)
            os.close(its_told)
        self.stderr = os.fdopen(error, encoding="utf-8")
        self._told = os.fdopen(told, encoding="utf-8")
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def _usual() -> dict[str, str]:
    return environment(Path(os.devnull), PYTHONFAULTHANDLER="1")
