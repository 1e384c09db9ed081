"""Where a small request's time goes: its stages, the server's own share of the processor, and the floor beside it.

The server's own share is all but the forward pass: what its threads were on a core for, less what the same calls cost
the bare runtime. The floor is the same HTTP server with a handler that returns a constant. One client at a time, and
64; then a profile of the server's loop under 64 (`cProfile`, which makes everything slower, calls most of all).
"""

from __future__ import annotations

import argparse
import os
import pstats
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _corpus import queries
from _load import Plan, run_load
from _serve_peers import TWOSHIFT
from _servers import BUILD, ROOT, Line, cpu_s, environment, first_reply, forget_profiles, free_port, running
from serve_identity import constant, rows

os.environ.update(environment({}))
CLIENTS, WARM, TOP = 64, 200, 25
STAGE = re.compile(rb"(\w+);dur=([\d.]+)")


class Used(NamedTuple):
    """Of the processor for a request, in microseconds."""

    loop_us: float
    others_us: float  # the engine's thread and the runtime's

    @property
    def us(self) -> float:
        return self.loop_us + self.others_us


class Alone(NamedTuple):
    """Requests one after the other."""

    wall_us: float
    used: Used
    stages_us: dict[str, float]


def used_since(pid: int, before_s: tuple[float, float], requests: int) -> Used:
    return Used(
        *(1e6 * (now_s - then_s) / max(1, requests) for now_s, then_s in zip(cpu_s(pid), before_s, strict=True))
    )


def alone(pid: int, port: int, requests: Sequence[bytes], count: int) -> Alone:
    line, walls_s, stages = Line(port), list[float](), dict[str, float]()
    for k in range(WARM):
        line.ask(requests[k % len(requests)])
    before_s = cpu_s(pid)
    for k in range(count):
        began_s = time.perf_counter()
        reply = line.ask(requests[k % len(requests)])
        walls_s.append(time.perf_counter() - began_s)
        for name, milliseconds in STAGE.findall(reply.head):
            stages[name.decode()] = stages.get(name.decode(), 0.0) + 1e3 * float(milliseconds) / count
    used = used_since(pid, before_s, count)
    line.close()
    return Alone(1e6 * statistics.median(walls_s), used, stages)


def together(pid: int, port: int, requests: Sequence[bytes], seconds: float) -> tuple[Used, float]:
    """With many clients, and requests a second."""
    before_s = cpu_s(pid)
    report = run_load(Plan(port=port, requests=list(requests), clients=CLIENTS, seconds=seconds, warm_s=0.0))
    return used_since(pid, before_s, report.ok.count), report.ok_per_s


def forward_us(model: str, given: Sequence[Any], rows: int, count: int) -> float:
    """Of the processor, that the bare runtime uses for a row in calls of so many."""
    from twoshift.wiring.model_loading import load_model

    runtime = load_model(model)
    calls = [runtime.prepare(given[at : at + rows]) for at in range(0, len(given) - rows + 1, rows)]
    for call in calls[:WARM]:
        runtime.launch([call]).wait()
    began_s = time.process_time()
    for k in range(count):
        runtime.launch([calls[k % len(calls)]]).wait()
    return 1e6 * (time.process_time() - began_s) / count / rows


@contextmanager
def served(name: str, command: Callable[[int], list[str]], request: bytes) -> Iterator[tuple[int, int]]:
    port = free_port()
    with running(name, command(port)) as pid:
        first_reply(name, pid, port, request)
        yield pid, port


def tell(name: str, one: Alone, many: Used, per_s: float, forward: tuple[float, float]) -> None:
    stages = ", ".join(f"{stage} {each:.0f}" for stage, each in one.stages_us.items())
    print(f"{name}: one client {one.wall_us:.0f} us at the median{f' ({stages})' if stages else ''}")
    for clients, used, forward_us in ((1, one.used, forward[0]), (CLIENTS, many, forward[1])):
        print(
            f"  processor, {clients:2} client{'s' if clients > 1 else ' '}: {used.us:.0f} us a request, "
            f"{used.us - forward_us:.0f} of it the server's own; on the loop {used.loop_us:.0f}"
        )
    print(f"  {per_s:.0f} requests/s with {CLIENTS} clients", flush=True)


def profiled(requests: Sequence[bytes], seconds: float) -> None:
    """The server's loop under many clients: functions by their own time."""
    found = BUILD / "serve.prof"
    found.unlink(missing_ok=True)
    words = [sys.executable, "-m", "cProfile", "-o", str(found)]
    with served("profiled", lambda port: [*words, *TWOSHIFT.words("identity", port)], requests[0]) as (_, port):
        run_load(Plan(port=port, requests=list(requests), clients=CLIENTS, seconds=seconds))
    stats = pstats.Stats(str(found)).stats  # type: ignore[attr-defined]
    total_s = sum(each[2] for each in stats.values())
    print(f"the server's loop with {CLIENTS} clients, by own time:")
    for (file, line, name), (_, calls, own_s, whole_s, _) in sorted(stats.items(), key=lambda each: -each[1][2])[:TOP]:
        where = file.removeprefix(f"{ROOT}/src/") if file != "~" else ""
        where = f"{Path(where).parent.name}/{Path(where).name}" if where.startswith("/") else where
        print(f"  {own_s / total_s:6.1%} own, {whole_s / total_s:6.1%} whole, {calls:8,} x {where}:{line} {name}")


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3_000, help="one after the other")
    parser.add_argument("--seconds", type=float, default=8.0, help="with many clients")
    options = parser.parse_args()
    forget_profiles()
    given, texts = rows(), queries(find_minilm() / "tokenizer.json", 1_024, 16)
    numbers = [TWOSHIFT.faces["identity"].request(row) for row in given]
    asks = {"minilm": [TWOSHIFT.faces["minilm"].request(text) for text in texts], "identity": numbers}
    same = f"{Path(__file__).with_name('_identity.py')}:Identity"
    as_rows = [{"x": row} for row in given]
    forwards = {
        "minilm": (forward_us("minilm", texts, 1, 200), forward_us("minilm", texts, CLIENTS, 20)),
        "identity": (forward_us(same, as_rows, 1, 2_000), forward_us(same, as_rows, CLIENTS, 200)),
    }
    with served("the floor", lambda port: constant().command("identity", port), numbers[0]) as (pid, port):
        one = alone(pid, port, numbers, options.requests)
        floor, per_s = together(pid, port, numbers, options.seconds)
        tell("the floor, a constant", one, floor, per_s, (0.0, 0.0))
    for model, requests in asks.items():
        with served(model, lambda port, model=model: TWOSHIFT.command(model, port), requests[0]) as (pid, port):
            one = alone(pid, port, requests, options.requests if model == "identity" else options.requests // 10)
            many, per_s = together(pid, port, requests, options.seconds)
            tell(model, one, many, per_s, forwards[model])
            print(f"  its own share is {(many.us - forwards[model][1]) / floor.us:.1f} times the floor", flush=True)
    profiled(numbers, options.seconds)


if __name__ == "__main__":
    main()
