"""What a request costs between a front and a replica: rows that the replica prepares, and rows that its fronts do.

One replica process over a model that answers at once, or after a given time, with 384 numbers a row; fronts in
processes of their own ask it over its Unix socket, one text a request, 64 at a time between them. CPU time is that of
the whole replica process. Both ways take turns in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from twoshift.engine import Engine
from twoshift.fleet.child import Child
from twoshift.fleet.control import Loaded, LoadFailed
from twoshift.fleet.front_rows import FrontPreparing
from twoshift.fleet.link import Link
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.encoder.folder import read_minilm
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat
from twoshift.serve.derived import derive
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import ServedModel
from twoshift.serve.model_settings import ModelSettings

QUERY = "how do i keep the tail latency of a small model low"
WIDTH, MOST_ROWS = 384, 4096
LIMITS = LaneLimits(slo_s=1.0, max_rows=512)
PLAIN, PREPARED = "the replica prepares", "fronts prepare"


class Echo:
    """An encoder's shape, and nothing behind it."""

    def __init__(self, call_s: float) -> None:
        self.row_preparer = TextTokenizer(read_minilm(), True)
        self.info = RuntimeInfo("echo", "0", "fake", "cpu", "fp32", 256, ("embedding",))
        self._call_s = call_s
        self._zeros = np.zeros((LIMITS.max_rows, WIDTH), np.float32)
        self._rows = 0

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        return self.row_preparer.rows(rows)

    def launch(self, parts: Sequence[Any], live: bool = False) -> Echo:
        self._rows = len(concat(parts))
        return self

    def wait(self) -> Columns:
        if self._call_s:
            time.sleep(self._call_s)
        return {"embedding": self._zeros[: self._rows]}

    def close(self) -> None:
        pass


def open_echo(call_s: float, name: str, _settings: ModelSettings, _note: Any) -> ServedModel:
    """The model, in the replica's process."""
    engine = Engine(Echo(call_s), CallCost.line(call_s + 1e-4, 1e-7), LIMITS, max_waiting=MOST_ROWS)
    return ServedModel(name, engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(16), MOST_ROWS))


async def ask(opened: Loaded, way: str, in_flight: int, seconds: float) -> int:
    """So many requests in a closed loop for some seconds; how many were answered."""
    live = socket.socket(socket.AF_UNIX)
    live.connect(opened.live_path)
    link = Link(lambda _: None, lambda *_: None, lambda: None)
    assert opened.preparer is not None
    preparing = FrontPreparing("echo", opened, opened.preparer.unpacked)

    async def taken() -> socket.socket:
        return live

    await link.connect(taken())
    until_s, answered = time.monotonic() + seconds, 0

    async def client(first: int) -> None:
        nonlocal answered
        number = first
        while (now_s := time.monotonic()) < until_s:
            request = LiveRequest([QUERY], now_s + 10.0, now_s)
            if way == PLAIN:
                answer = await link.ask(number, request)
            else:
                answer = await link.ask_prepared(number, await preparing.prepared(request, lambda _: 0.0), request)
            assert answer.rows[0]["embedding"].shape == (WIDTH,)
            number += in_flight
            answered += 1

    await asyncio.gather(*(client(first) for first in range(in_flight)))
    link.close()
    preparing.close()
    return answered


def front(control: Any, opened: Loaded, in_flight: int) -> None:
    """A front's process: turns as it is told."""
    while (given := control.recv()) is not None:
        control.send(uvloop.run(ask(opened, given[0], in_flight, given[1])))


def cpu_s(pid: int) -> float:
    """What a process has had of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loaded(child: Child) -> Loaded:
    """What the replica says of itself once it is ready."""
    while True:
        said, over = child.heard()
        for message in said:
            if isinstance(message, Loaded):
                return message
            assert not isinstance(message, LoadFailed), message
        assert not over
        time.sleep(0.05)


def turn(child: Child, lines: Sequence[Any], way: str, seconds: float) -> tuple[float, float]:
    """Requests a second of all fronts together, and microseconds of the replica for each."""
    began_s, before_s = time.monotonic(), cpu_s(child.pid)
    for line in lines:
        line.send((way, seconds))
    answered = sum(line.recv() for line in lines)
    return answered / (time.monotonic() - began_s), 1e6 * (cpu_s(child.pid) - before_s) / answered


def measure(options: argparse.Namespace, call_s: float) -> None:
    """One replica, its fronts, and both ways by turns."""
    settings = ModelSettings(model="echo", slo_ms=1000.0)
    child = Child(ReplicaSpec("echo", settings, functools.partial(open_echo, call_s)), None)
    context, lines, processes = multiprocessing.get_context("spawn"), list[Any](), list[Any]()
    try:
        opened = loaded(child)
        for _ in range(options.fronts):
            line, theirs = context.Pipe()
            lines.append(line)
            processes.append(context.Process(target=front, args=(theirs, opened, options.in_flight // options.fronts)))
            processes[-1].start()
        for way in (PLAIN, PREPARED):
            turn(child, lines, way, 1.0)  # what is cold
        seen: dict[str, list[tuple[float, float]]] = {PLAIN: [], PREPARED: []}
        for _ in range(options.turns):
            for way, found in seen.items():
                found.append(turn(child, lines, way, options.seconds))
        for way, found in seen.items():
            per_s, cost_us = (statistics.median(each) for each in zip(*found, strict=True))
            print(
                f"calls of {1e3 * call_s:g} ms, {options.fronts} fronts, {way:20}: "
                f"{per_s:7,.0f} requests/s, {cost_us:5.1f} us of the replica for each"
            )
    finally:
        for line in lines:
            line.send(None)
        for process in processes:
            process.join()
        child.ask_to_stop()
        child.bury(time.monotonic() + 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fronts", type=int, default=2, help="processes that ask")
    parser.add_argument("--in-flight", type=int, default=64, help="requests, of all of them together")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--call-ms", type=float, action="append", help="of the model (default: 0 and 2)")
    options = parser.parse_args()
    for call_ms in options.call_ms or (0.0, 2.0):
        measure(options, call_ms / 1e3)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
