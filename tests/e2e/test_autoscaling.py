"""A fleet that grows under load and shrinks after the cool-down, and whose day replays to the same decisions."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import PROGRAM, environment
from servers import Server, until

for needs in ("httptools", "sqlalchemy", "pyarrow"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
SOURCE = """
import time

import numpy as np


class Slow:
    outputs = ("embedding",)
    example = "a"

    def load(self):
        pass

    def prepare(self, rows):
        return {"size": np.array([len(row) for row in rows])}

    def predict(self, batch):
        time.sleep(0.02 * len(batch["size"]))
        return {"embedding": batch["size"][:, None] / 7}
"""
CONFIG = """
[models.slow]
model = "MODEL"
slo_ms = 300
replicas = 1
max_replicas = 2

[models.slow.scale]
every = "200ms"
cooldown = "3s"
"""


@contextmanager
def busy(server: Server, clients: int) -> Iterator[None]:
    """Each asks again as soon as it is answered."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            server.embed("slow", "a")

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def replay(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = environment(home)
    command = [PROGRAM, "sim", "day", "--replay", str(home / "scale" / "slow.jsonl"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_overload_brings_a_second_replica_the_cool_down_takes_it_and_the_day_replays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (tmp_path / "m.py").write_text(SOURCE)
    (tmp_path / "twoshift.toml").write_text(CONFIG.replace("MODEL", f"{tmp_path}/m.py:Slow"))
    server = Server(home, "--config", str(tmp_path / "twoshift.toml"))

    def replicas() -> float:
        return server.counted("replicas", state="ready")

    try:
        assert replicas() == 1
        assert 0 < server.counted("replica_rows_per_second") < 60  # 20 ms a row
        with busy(server, 8):
            until(lambda: replicas() == 2)
        until(lambda: replicas() == 1)
        assert server.counted("scale_decisions_total", direction="up") >= 1
        assert server.counted("scale_decisions_total", direction="down", reason="cooldown") >= 1
        assert server.counted("offered_rows_total") > 0
        assert "slow: scaling replicas to 2: add 1: " in server.said
        assert "slow: scaling replicas to 1: remove 1: " in server.said
        assert server.stop() == 0
    finally:
        server.end()
    again = replay(home, "--json")
    assert again.returncode == 0, again.stdout + again.stderr
    day = json.loads(again.stdout)
    assert day["identical"]
    assert day["decisions"] > 10
    assert [change["recorded"] for change in day["changes"]][:1] == [2]
    bounded = json.loads(replay(home, "--json", "--max-replicas", "1").stdout)
    assert {each["decided"] for each in bounded["differences"]} == {1}
