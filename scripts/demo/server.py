"""A `twoshift serve` in processes of its own: asked over HTTP, killed by its process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["Server"]

_PROGRAM = str(Path(sys.executable).with_name("twoshift"))
_START_S, _ASK_S, _STOP_S = 150.0, 30.0, 20.0


class Server:
    """Ready once it is made."""

    def __init__(self, words: list[str], log: Path, env: dict[str, str]) -> None:
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(  # noqa: S603
                [_PROGRAM, "serve", *words], stdout=file, stderr=subprocess.STDOUT, env=os.environ | env
            )
        found = self._until_ready()
        self.address, self.port = found[0], int(found[1])

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """What it answers, as JSON; raises RuntimeError where it refuses."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers or {})
            reply = connection.getresponse()
            data = reply.read()
        finally:
            connection.close()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {reply.status} {data.decode(errors='replace')}")
        return json.loads(data) if path != "/metrics" else data.decode()

    def counted(self, name: str, **labels: str) -> float:
        """One of its metrics, summed over the labels that are not said."""
        total = 0.0
        for line in self.ask("GET", "/metrics").splitlines():
            found = re.fullmatch(rf"twoshift_{name}(?:{{(.*)}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def kill_a_replica(self) -> int:
        """kill -9; its process."""
        pid = self._replicas()[-1]
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self) -> None:
        """In peace, or else."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._process.kill()

    def _replicas(self) -> list[int]:
        """Its children, less the one that multiprocessing keeps for itself."""
        found = list[int]()
        for each in Path(f"/proc/{self._process.pid}/task").glob("*/children"):  # by the thread that started them
            found += [int(pid) for pid in each.read_text().split()]
        if not found:  # no such files on a Mac
            listed = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
            pairs = [line.split() for line in listed.stdout.splitlines()]
            found = [int(pid) for pid, parent in pairs if parent == str(self._process.pid)]
        return sorted(pid for pid in found if "resource_tracker" not in _command(pid))

    def _until_ready(self) -> tuple[str, str]:
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            found = re.search(r"Ready at (http://\S+:(\d+))", self._log.read_text())
            if found:
                return found[1], found[2]
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self._process.kill()
        sys.exit(f"The server did not start:\n{self._log.read_text()}")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        words = ["/bin/ps", "-o", "command=", "-p", str(pid)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout  # noqa: S603
