"""The simulator against the server: a recorded trace over HTTP, and the same arrivals simulated.

MiniLM behind `twoshift serve`. Capacity is what a closed loop of patient clients gets. Then the trace is played in open
loop at shares of it, and once more with a job beside; latency counts from when each request was due. The simulator
gets the very same arrivals and what `GET /v1/derived` said during the run: curves as learned, lanes, limits, host.
Ratios are simulated over served; the goal is 1 to within 15 %. `ideal` is the share that a queue without any overhead
has of the same arrivals: a trace that comes in bursts is not answered in time by anybody.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _load import Plan, post, run_load
from _overload_cells import Served
from _overload_server import NAME, PATIENT_MS, Server, serving, tokenizer
from _servers import BUILD, ROOT, environment, forget_profiles
from _trace import TimedPlan, play
from numpy.typing import NDArray

from twoshift.sim.lanes import LanesSpec, serve_arrivals
from twoshift.sim.served import ServedCurves, read_served
from twoshift.sim.traffic import Arrivals, parse_trace

os.environ.update(environment({}))
TRACE = ROOT / "examples" / "azure_llm_code_2023_excerpt.csv"
GOAL = 0.15
CLIENTS, WARM_S = 8, 2.0
LEAST_TOKENS = 6
LOOK_S = 0.5  # how often the server is asked for its curves
JOB_ROWS, JOB_TOKENS, JOB_BLOCK_ROWS = 20_000, 64, 4_096
SEEDS = 5  # simulations, of which the median counts


@dataclass(frozen=True, slots=True)
class Seen:
    """What callers saw, and what a job got."""

    p50_ms: float
    p99_ms: float
    inside: float
    background_per_s: float


@dataclass(slots=True)
class Trace:
    """The rest of a trace, piece by piece: no arrival is played twice."""

    arrivals: Arrivals
    at: int = 0

    def next(self, rate_per_s: float, seconds: float) -> Arrivals:
        """The next rows, sped up or slowed down to a mean rate."""
        count = max(2, round(rate_per_s * seconds))
        if self.at + count > len(self.arrivals.times_s):
            self.at = 0
        rows = slice(self.at, self.at + count)
        self.at += count
        times_s = self.arrivals.times_s[rows] - self.arrivals.times_s[self.at - count]
        span_s = float(times_s[-1]) * count / (count - 1)
        return Arrivals(times_s, self.arrivals.tokens[rows], span_s).rescaled(rate_per_s)


class Texts:
    """Texts of given numbers of tokens."""

    def __init__(self) -> None:
        vocabulary = json.loads(tokenizer().read_text())["model"]["vocab"]
        self._words = np.array([w for w in vocabulary if w.isascii() and w.isalpha() and w.islower()])
        self._rng = np.random.default_rng(0)

    def text(self, tokens: int) -> str:
        return " ".join(self._rng.choice(self._words, tokens - 2))  # two are the tokenizer's own

    def request(self, tokens: int, *headers: str) -> bytes:
        body = {"model": NAME, "input": self.text(tokens), "encoding_format": "base64"}
        return post("/v1/embeddings", json.dumps(body).encode(), ("content-type: application/json", *headers))


class Curves:
    """What the server says of itself, again and again while something runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.seen: list[tuple[float, dict[str, Any]]] = []  # when, on the clock of time.perf_counter
        self._rows: list[float] = []  # of jobs, by then

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._follow, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _follow(self, over: threading.Event) -> None:
        while True:
            self.seen.append((time.perf_counter(), self._server.get(f"/v1/derived/{NAME}")))
            self._rows.append(self._server.batch_rows())
            if over.wait(LOOK_S):
                return

    def background_per_s(self, from_s: float, until_s: float) -> float:
        """Rows of jobs."""
        first, last = np.interp([from_s, until_s], [at_s for at_s, _ in self.seen], self._rows)
        return float(last - first) / (until_s - from_s)

    def since(self, zero_s: float) -> list[tuple[float, ServedCurves]]:
        """A curve that was learned by a moment is of the calls before it: it holds from the look before on."""
        found = [(at_s - zero_s, read_served(reply)) for at_s, reply in self.seen]
        return [(before_s, curves) for (before_s, _), (_, curves) in itertools.pairwise(found)]


def capacity_per_s(port: int, texts: Texts, tokens: Sequence[int], seconds: float) -> float:
    requests = [texts.request(n, f"x-request-timeout-ms: {PATIENT_MS}") for n in tokens]
    return run_load(Plan(port=port, requests=requests, clients=CLIENTS, seconds=seconds, warm_s=WARM_S)).ok_per_s


def served(server: Server, texts: Texts, arrivals: Arrivals, slo_s: float) -> tuple[Seen, Curves, float]:
    """Over HTTP; with the curves while it ran, and when it began."""
    requests = [texts.request(int(n)) for n in arrivals.tokens]
    curves = Curves(server)
    with curves.followed():
        replies = play(TimedPlan(server.port, requests, arrivals.times_s.tolist()))
    background = curves.background_per_s(replies.zero_s, replies.zero_s + arrivals.horizon_s)
    answered = np.array(replies.latencies_s)[np.array(replies.statuses) == 200]
    return _seen(answered, len(requests), slo_s, background), curves, replies.zero_s


def simulated(
    arrivals: Arrivals, slo_s: float, curves: Sequence[tuple[float, ServedCurves]], job: Sequence[int]
) -> Seen:
    """The same arrivals; a policy that begins with the first curves on a device that follows them all."""
    first = curves[0][1]
    spec = LanesSpec(
        first.whole,
        first.limits.max_rows,
        slo_s,
        1.0,
        background=bool(job),
        noise=None,
        row_tokens=first.row_tokens,
        lanes=first.limits.lanes,
        lane_cost=first.lane,
        given=first.limits,
        host=first.host,
        background_lengths=tuple(job),
        changes=tuple((at_s, each.whole, each.lane) for at_s, each in curves),
    )
    found = [_simulated_once(replace(spec, seed=seed), arrivals, slo_s) for seed in range(SEEDS)]
    names = ("p50_ms", "p99_ms", "inside", "background_per_s")
    return Seen(*(statistics.median(getattr(each, name) for each in found) for name in names))


def _simulated_once(spec: LanesSpec, arrivals: Arrivals, slo_s: float) -> Seen:
    log, server = serve_arrivals(spec, arrivals)
    latencies_s = np.array(log.latencies_s)
    rows = sum(use.background_rows for use in server.uses())
    # What is not answered by its deadline, the server answers with a 504.
    return _seen(latencies_s[latencies_s <= slo_s], len(arrivals.times_s), slo_s, rows / arrivals.horizon_s)


def _seen(latencies_s: NDArray[np.float64], asked: int, slo_s: float, background_per_s: float) -> Seen:
    p50_ms, p99_ms = (1e3 * np.percentile(latencies_s, (50, 99))).tolist() if len(latencies_s) else (0.0, 0.0)
    return Seen(p50_ms, p99_ms, float((latencies_s <= slo_s).sum()) / asked, background_per_s)


def ideal_inside(arrivals: Arrivals, tokens_per_s: float, slo_s: float) -> float:
    """Of rows one after the other, each for its tokens' time; one that would be late is refused, at no cost."""
    free_s, inside = 0.0, 0
    for at_s, tokens in zip(arrivals.times_s.tolist(), arrivals.tokens.tolist(), strict=True):
        end_s = max(free_s, at_s) + tokens / tokens_per_s
        if end_s <= at_s + slo_s:
            free_s, inside = end_s, inside + 1
    return inside / len(arrivals.times_s)


def shown(name: str, real: Seen, made: Seen) -> bool:
    """Print both side by side; whether every ratio is within the goal."""
    good = True
    for label, unit in (("p50_ms", "ms"), ("p99_ms", "ms"), ("inside", ""), ("background_per_s", "rows/s")):
        got, want = getattr(made, label), getattr(real, label)
        if not want:
            continue
        ratio = got / want
        good &= abs(ratio - 1) <= GOAL
        mark = "" if abs(ratio - 1) <= GOAL else "  <-- over"
        print(f"{name:12} {label:17} served {want:8.4g}  simulated {got:8.4g} {unit:6} ratio {ratio:.2f}{mark}")
    return good


def job_input(texts: Texts) -> Path:
    """Rows of one length: the order in which a job takes them does not matter then."""
    path = BUILD / f"sim-serve-{JOB_TOKENS}.jsonl"
    if not path.exists():
        path.write_text("".join(json.dumps({"text": texts.text(JOB_TOKENS)}) + "\n" for _ in range(JOB_ROWS)))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=TRACE, help="CSV with TIMESTAMP and ContextTokens")
    parser.add_argument("--scale-lengths", type=float, default=0.1)
    parser.add_argument("--longest", type=int, default=200, help="tokens; longer rows are cut")
    parser.add_argument("--load", type=float, nargs="*", default=[0.1, 0.3, 0.7, 1.2], help="shares of capacity")
    parser.add_argument("--job-load", type=float, nargs="*", default=[0.3], help="the same with a job beside")
    parser.add_argument("--seconds", type=float, default=40.0, help="of a run")
    parser.add_argument("--slo-ms", type=float, default=200.0)
    parser.add_argument("--keep", type=Path, help="write what was seen and learned into this folder")
    options = parser.parse_args()
    slo_s = options.slo_ms / 1e3
    whole = parse_trace(options.trace.read_text().splitlines(), "--trace").scaled(options.scale_lengths)
    trace = Trace(replace(whole, tokens=np.clip(whole.tokens, LEAST_TOKENS, options.longest)))
    forget_profiles()
    texts, good = Texts(), True
    with serving(Served("minilm", options.slo_ms, 1), jobs=True) as server:
        lengths = trace.arrivals.tokens[:512].tolist()
        capacity = capacity_per_s(server.port, texts, lengths, 8.0)
        tokens_per_s = capacity * statistics.mean(lengths)
        print(f"capacity: {capacity:.1f} rows/s, a closed loop of {CLIENTS} patient clients", flush=True)
        for load, has_job in [*((load, False) for load in options.load), *((load, True) for load in options.job_load)]:
            arrivals = trace.next(load * capacity, options.seconds)
            with server.job([job_input(texts)]) if has_job else contextlib.nullcontext():
                real, curves, zero_s = served(server, texts, arrivals, slo_s)
            lengths = [JOB_TOKENS] * JOB_BLOCK_ROWS if has_job else []
            made = simulated(arrivals, slo_s, curves.since(zero_s), lengths)
            name = f"{load}{' +job' * has_job}"
            good &= shown(name, real, made)
            print(
                f"{name:12} inside            ideal  {ideal_inside(arrivals, tokens_per_s, slo_s):8.4g}\n", flush=True
            )
            if options.keep:
                _keep(options.keep / f"{name}.npz", arrivals, real, curves, zero_s, lengths)
    return int(not good)


def _keep(path: Path, arrivals: Arrivals, real: Seen, curves: Curves, zero_s: float, lengths: Sequence[int]) -> None:
    """To simulate it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seen = json.dumps([(at_s - zero_s, reply) for at_s, reply in curves.seen])
    served = json.dumps(asdict(real))
    np.savez(path, times=arrivals.times_s, tokens=arrivals.tokens, real=served, seen=seen, lengths=lengths)


if __name__ == "__main__":
    raise SystemExit(main())
