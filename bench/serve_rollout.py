"""What a rollout costs the requests of a server: MiniLM with and without a candidate at 5 %.

Two servers of the same version run side by side and are asked in turn, closed loop, in short slices; the idle one costs
nothing. With --no-cost the model answers at once: then all that is measured is the server, and each request to the
candidate wakes a second engine. Of the ratios of neighbouring slices the median counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _load import Plan, run_load
from _servers import environment, free_port, running, wait_for

AT_LEAST = 0.98
CLIENTS, SHARE = 32, "5%"
MODEL = """
import numpy as np

class Same:
    outputs = ("y",)
    example = {"x": 1.0}
    number = NUMBER

    def load(self):
        pass

    def predict(self, batch):
        return {"y": np.asarray(batch["x"], np.float64)}
"""
ROW = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1.0]}]}
TEXT = "how many people live in the old town by the river, and since when do they"


def request(number: int, no_cost: bool) -> bytes:
    path, body = ("/v2/models/same/infer", ROW) if no_cost else ("/v1/embeddings", {"model": "same", "input": TEXT})
    told = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\nx-route-key: user-{number}\r\ncontent-length: {len(told)}\r\n\r\n"
    return head.encode() + told


def program(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "twoshift", *words], check=True, capture_output=True)


@contextlib.contextmanager
def server(folder: Path, name: str) -> Iterator[int]:
    port, database = free_port(), f"sqlite:///{folder}/{name}.db"
    words = ["serve", "same:1", "--slo-ms", "1000", "--port", str(port), "--database", database, "--fronts", "1"]
    with running(name, [sys.executable, "-m", "twoshift", *words]):
        wait_for(port)
        while _status(port) != 200:
            time.sleep(0.1)
        yield port


def _status(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as reply:
            return reply.status
    except OSError:
        return 0


def begin_rollout(port: int) -> None:
    address = f"http://127.0.0.1:{port}"
    program("deploy", "same:2", "--canary", SHARE, "--on", address)
    _until(address, lambda found: found["stage"] == "ladder")
    program("rollouts", "pause", "same", "--on", address)
    _until(address, lambda found: found["paused"])


def _until(address: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    while True:
        with urllib.request.urlopen(f"{address}/v1/rollouts/same") as reply:  # noqa: S310
            found = json.load(reply)
        if holds(found):
            return
        if found["stage"] in ("promoted", "rolled_back"):
            raise SystemExit(f"the rollout is over: {found['reason']}")
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a slice")
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument("--no-cost", action="store_true", help="a model that answers at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ.update(environment({"TWOSHIFT_HOME": made, "TWOSHIFT_REGISTRY": f"{made}/registry"}))
        for number in (1, 2):
            (folder / "same.py").write_text(MODEL.replace("NUMBER", str(number)))
            program("models", "push", "same", f"{folder}/same.py:Same" if options.no_cost else "minilm")
        with server(folder, "without") as without, server(folder, "with") as beside:
            begin_rollout(beside)
            requests = [request(number, options.no_cost) for number in range(256)]
            ratios, rates = list[float](), {without: list[float](), beside: list[float]()}
            for turn in range(options.slices):
                for port in (without, beside) if turn % 2 else (beside, without):
                    plan = Plan(port=port, requests=requests, clients=CLIENTS, seconds=options.seconds, warm_s=0.3)
                    rates[port].append(run_load(plan).ok_per_s)
                ratios.append(rates[beside][-1] / rates[without][-1])
            for name, port in (("without", without), ("with", beside)):
                print(f"{name:8} a rollout: {statistics.median(rates[port]):,.0f} requests/s")
            print(f"of the throughput without one: {statistics.median(ratios):.3f} (at least {AT_LEAST})")


if __name__ == "__main__":
    main()
