"""MiniLM behind a server, 16-token queries, against the bare model and against what people serve with today.

Closed loop with 32 and with 128 clients. The ceiling is Twoshift's own runtime in a plain loop without any server:
calls of as many queries as there are clients, from text to vectors; its p99 is that of a call. Every peer has the same
runtime inside (`_serve_peers.py`), so only the serving differs; each of their programs says how it was tuned. The
speed of a shared machine changes by the minute, so a stretch of the ceiling is measured before and after each run, and
a run counts as a share of the two; of several turns the median counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from _corpus import queries
from _load import Plan, Report, run_load
from _serve_peers import TWOSHIFT, Peer, add_choice, chosen, take_turns
from _servers import Skipped, environment, first_reply, forget_profiles, free_port, running

os.environ.update(environment({}))
QUERIES, TOKENS, CLIENTS = 1_024, 16, (32, 128)
AT_LEAST = {"Triton": 1.1, "LitServe": 1.7, "BentoML": 1.7, "Ray Serve": 1.7}
OF_BARE = 0.95
SAME = 0.9999  # the cosine from which two vectors are the same one


class Run(NamedTuple):
    """One run of a server, and what the bare model did beside it."""

    per_s: float
    p99_ms: float
    share: float  # of the ceiling


class Bare:
    """The model in a plain loop."""

    def __init__(self, texts: Sequence[str]) -> None:
        from twoshift.wiring import load_model

        self._runtime = load_model("minilm", device="cpu")
        self._texts = itertools.cycle(texts)
        self.vector = self._call([texts[0]])[0]

    def _call(self, texts: list[str]) -> np.ndarray:
        return self._runtime.launch([self._runtime.prepare(texts)]).wait()["embedding"]

    def run(self, rows: int, seconds: float) -> tuple[float, float]:
        """Queries a second in calls of so many, and the p99 of a call in milliseconds."""
        calls_s = list[float]()
        until_s = time.perf_counter() + seconds
        while (began_s := time.perf_counter()) < until_s:
            self._call(list(itertools.islice(self._texts, rows)))
            calls_s.append(time.perf_counter() - began_s)
        return rows * len(calls_s) / sum(calls_s), 1e3 * float(np.quantile(calls_s, 0.99))


@contextmanager
def served(peer: Peer, texts: Sequence[str], expected: np.ndarray) -> Iterator[int]:
    """A server's port, once it has answered with the right vector."""
    port, face = free_port(), peer.faces["minilm"]
    with running(peer.name, peer.command("minilm", port), peer.environ()) as pid:
        first = face.numbers(first_reply(peer.name, pid, port, face.request(texts[0])).body)
        cosine = float(first @ expected / np.linalg.norm(first) / np.linalg.norm(expected))
        if cosine < SAME:
            raise Skipped(f"{peer.name} answers with another vector: cosine {cosine:.4f}")
        yield port


def shown(name: str, clients: int, report: Report, run: Run, bare_per_s: float) -> str:
    return (
        f"{name:10} {clients:4} clients: {run.per_s:6.1f} requests/s, p50 {report.ok.p50_ms:6.1f}, p99 "
        f"{run.p99_ms:6.1f} ms; bare beside it {bare_per_s:6.1f}: {run.share:.3f}{report.failures}"
    )


def measure(peer: Peer, bare: Bare, texts: Sequence[str], seconds: float) -> dict[int, Run]:
    """A run for each number of clients, between two stretches of the ceiling."""
    runs = dict[int, Run]()
    requests = [peer.faces["minilm"].request(text) for text in texts]
    with served(peer, texts, bare.vector) as port:
        for clients in CLIENTS:
            before, _ = bare.run(clients, seconds / 2)
            report = run_load(Plan(port=port, requests=requests, clients=clients, seconds=seconds))
            after, _ = bare.run(clients, seconds / 2)
            bare_per_s = (before + after) / 2
            runs[clients] = Run(report.ok_per_s, report.ok.p99_ms, report.ok_per_s / bare_per_s)
            print(f"  {shown(peer.name, clients, report, runs[clients], bare_per_s)}", flush=True)
    return runs


def median(runs: Sequence[dict[int, Run]], clients: int) -> Run:
    return Run(*map(statistics.median, zip(*(each[clients] for each in runs), strict=True)))


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run")
    parser.add_argument("--turns", type=int, default=3)
    add_choice(parser)
    options = parser.parse_args()
    forget_profiles()
    texts = queries(find_minilm() / "tokenizer.json", QUERIES, TOKENS)
    bare = Bare(texts)
    runs = take_turns(
        [TWOSHIFT, *chosen(options)], lambda peer: measure(peer, bare, texts, options.seconds), options.turns
    )
    for clients in CLIENTS:
        alone_per_s, call_ms = bare.run(clients, options.seconds)
        ours = median(runs[TWOSHIFT.name], clients)
        print(f"{clients} clients: bare loop {alone_per_s:.1f} requests/s, p99 of a call {call_ms:.1f} ms")
        print(f"  of the bare loop: {ours.share:.3f} (at least {OF_BARE})")
        for name, at_least in AT_LEAST.items():
            if name in runs:
                theirs = median(runs[name], clients)
                print(
                    f"  times {name}: {ours.share / theirs.share:.2f} (at least {at_least}); "
                    f"p99 {ours.p99_ms:.1f} ms to {theirs.p99_ms:.1f} (lower)"
                )


if __name__ == "__main__":
    main()
