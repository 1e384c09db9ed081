"""`twoshift serve` in a process of its own, and how to talk to it."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import PROGRAM, environment

from waiting import WAIT_S, until

__all__ = ["Got", "Server", "until"]

# TWOSHIFT_TEST_FRONTS=2: every server has so many front processes, and must be the same to its clients
FRONTS = [f"--fronts={fronts}"] if (fronts := os.environ.get("TWOSHIFT_TEST_FRONTS")) else []


@functools.cache
def _profiles() -> tempfile.TemporaryDirectory[str]:
    """What each model costs is measured once by all servers of this process."""
    return tempfile.TemporaryDirectory(prefix="twoshift-profiles-")


@functools.cache
def _new_database() -> bytes:
    """What the first server of a home makes. That it does is tested elsewhere; here it takes a fifth of each start."""
    from twoshift.store.database import Database  # sqlalchemy: an extra

    with tempfile.TemporaryDirectory() as folder:
        Database(f"sqlite:///{folder}/fleet.db").close()
        return Path(folder, "fleet.db").read_bytes()


@dataclass(frozen=True, slots=True)
class Got:
    """A reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error."""
        return self.json()["error"]["message"]


class Server:
    """Started with these words after `serve`; ready once it is made."""

    def __init__(
        self,
        home: Path,
        *words: str,
        files: int | None = None,
        more: dict[str, str] | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """`files` is how many it may have open at first; it may ask the system for more. `more` is its environment."""
        env = environment(home, PYTHONFAULTHANDLER="1", **(more or {}))
        with contextlib.suppress(OSError):  # there already, or its disk is full
            home.mkdir(parents=True, exist_ok=True)
            (home / "profiles").symlink_to(_profiles().name)
        with contextlib.suppress(OSError), (home / "fleet.db").open("xb") as file:
            file.write(_new_database())
        command = [PROGRAM, "serve", *words, "--port", "0", *FRONTS]
        if files is not None:
            command = ["sh", "-c", f'ulimit -S -n {files}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait(wait_s)
            found = re.search(r"Ready at (?:https?)://(\S+):(\d+)", self.said)
            assert found, self.said
        except BaseException:
            self.end()
            raise
        self.host, self.port = found[1].strip("[]"), int(found[2])
        self.address = f"http://{found[1]}:{self.port}"

    def _wait(self, wait_s: float) -> None:
        """Until it is ready or has ended; one that hangs tells the stacks of its threads."""
        try:
            until(lambda: "Ready at" in self.said or self.process.poll() is not None, wait_s)
        except AssertionError:
            self.process.send_signal(signal.SIGABRT)
            self._reader.join(120)
            raise AssertionError(f"not ready after {wait_s:.0f} s; it said: {self.said}") from None

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, wait_s: float = WAIT_S
    ) -> Got:
        """One request on a connection of its own; what is not bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=wait_s)
        try:
            connection.request(method, path, data, headers or {})
            reply = connection.getresponse()
            return Got(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def embed(self, model: str, given: Any, **headers: str) -> Got:
        """POST /v1/embeddings; headers with _ for -."""
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/v1/embeddings", {"model": model, "input": given}, shown)

    def connect(self) -> socket.socket:
        """A connection as it is."""
        return socket.create_connection((self.host, self.port), timeout=WAIT_S)

    def raw(self, data: bytes) -> bytes:
        """What it says to these bytes, until it closes."""
        with self.connect() as made:
            made.sendall(data)
            found = bytearray()
            while piece := made.recv(1 << 16):
                found += piece
        return bytes(found)

    def counted(self, name: str, **labels: str) -> float:
        """One of its metrics, summed over the labels that are not said."""
        from prometheus_client.parser import text_string_to_metric_families

        page = self.ask("GET", "/metrics").body.decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == f"twoshift_{name}" and labels.items() <= sample.labels.items()
        )

    def resident_bytes(self) -> int:
        """What it holds of the machine's memory."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return 1024 * int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def end(self) -> None:
        """However it is."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
