"""Versions of a small model in a registry, a server of one of them, and clients that ask it all the time."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from programs import command, environment
from servers import Server, until

__all__ = ["Clients", "Versions", "asked", "rollout", "until_stage"]

_TIMES = """
import os
import time

import numpy as np


class Times:
    outputs = ("product",)
    example = {"x": 1.0}

    def load(self):
        if LOAD == "fail":
            raise RuntimeError("these weights are damaged")
        if LOAD == "exit":
            os._exit(3)

    def predict(self, batch):
        asked = np.asarray(batch["x"], np.float64)
        if LOAD == "exit at the first call" and (asked == 7).any():
            os._exit(4)
        if FAILS and (asked % FAILS == 0).any():
            raise RuntimeError("this version is broken")
        time.sleep(SLEEP)
        return {"product": asked * FACTOR}
"""


class Versions:
    """A home, a registry with versions of `times`, and servers over them."""

    def __init__(self, path: Path) -> None:
        self.path, self.home = path, path / "home"
        self.home.mkdir(parents=True)
        self.more = {"TWOSHIFT_REGISTRY": str(path / "registry")}
        self.env = environment(self.home, **self.more)

    def push(self, factor: float, *, fails: int = 0, sleep_s: float = 0.0, load: str = "", check: bool = True) -> None:
        """The next version: it multiplies by that factor; every row that `fails` divides raises."""
        source = _TIMES.replace("FACTOR", str(factor)).replace("FAILS", str(fails)).replace("SLEEP", str(sleep_s))
        (self.path / "times.py").write_text(source.replace("LOAD", repr(load)))
        self.run("models", "push", "times", f"{self.path}/times.py:Times", *([] if check else ["--no-check"]))

    def run(self, *words: str, code: int = 0) -> str:
        found = command(*words, env=self.env)
        assert found.returncode == code, (found.stdout, found.stderr)
        return found.stdout if code == 0 else found.stderr

    @contextlib.contextmanager
    def serve(self, *words: str, model: str | None = "times:1", home: str = "") -> Iterator[Server]:
        """None: the words name a configuration file."""
        named = () if model is None else (model, "--slo-ms", "5000")
        server = Server(self.path / home if home else self.home, *named, *words, more=self.more)
        try:
            yield server
        finally:
            server.end()

    def config(self, model: str = "times:1", more: str = "", rollout: str = "") -> str:
        """A configuration file with one model; steps follow one another as soon as there is evidence."""
        path = self.path / "server.toml"
        table = f'[models.times]\nmodel = "{model}"\nslo_ms = 5000\n[models.times.rollout]\nmin_step = "0s"\n'
        path.write_text(f"{more}\n{table}{rollout}\n")
        return str(path)


def rollout(server: Server, name: str = "times") -> dict[str, Any]:
    """The newest rollout of a deployment."""
    got = server.ask("GET", f"/v1/rollouts/{name}")
    assert got.status == 200, got.body
    return got.json()


def until_stage(server: Server, *stages: str) -> dict[str, Any]:
    """The rollout once it is in one of these stages."""
    until(lambda: rollout(server)["stage"] in stages, what=lambda: rollout(server))
    return rollout(server)


def asked(server: Server, x: float = 10.0, path: str = "/v2/models/times", **headers: str) -> Any:
    """A reply to one row; headers with _ for -."""
    tensor = {"name": "x", "shape": [1], "datatype": "FP64", "data": [x]}
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.ask("POST", f"{path}/infer", {"inputs": [tensor]}, shown)


class Clients:
    """Threads that ask a server until they are stopped; what they got is counted by status and version."""

    def __init__(self, server: Server, threads: int = 2) -> None:
        self._server, self._stop = server, threading.Event()
        self.seen: Counter[tuple[int, str]] = Counter()
        self.wrong = list[str]()
        self._threads = [threading.Thread(target=self._ask, args=(k,), daemon=True) for k in range(threads)]

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    @property
    def failed(self) -> dict[tuple[int, str], int]:
        """What was no answer."""
        return {key: count for key, count in self.seen.items() if key[0] != 200}

    def versions(self) -> set[str]:
        """That have answered."""
        return {version for status, version in self.seen if status == 200}

    def _ask(self, number: int) -> None:
        made = http.client.HTTPConnection(self._server.host, self._server.port, timeout=120)
        count = number
        while not self._stop.is_set():
            count += 1
            tensor = {"name": "x", "shape": [1], "datatype": "FP64", "data": [float(count % 10)]}
            made.request("POST", "/v2/models/times/infer", json.dumps({"inputs": [tensor]}))
            reply = made.getresponse()
            body = reply.read()
            self.seen[reply.status, reply.headers.get("x-twoshift-version", "")] += 1
            if reply.status != 200:
                self.wrong.append(body.decode())
        made.close()
