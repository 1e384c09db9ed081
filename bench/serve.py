"""MiniLM behind a server, 16-token queries, against the bare model and against what people serve with today.

Closed loop with 32 and with 128 clients. The ceiling is Twoshift's own runtime in a plain loop without any server:
calls of as many queries as there are clients, from text to vectors; its p99 is that of a call. Every peer has the same
runtime inside (`_serve_peers.py`), so only the serving differs; each of their programs says how it was tuned. The
speed of a shared machine changes by the second, so runs are short and many, a stretch of the ceiling lies before and
after each, and a run counts as a share of the two; of all of them the median counts.
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
from _load import Plan, run_load
from _serve_peers import TWOSHIFT, Peer, add_choice, chosen, take_turns
from _servers import Skipped, environment, first_reply, forget_profiles, free_port, running

os.environ.update(environment({}))
QUERIES, TOKENS, CLIENTS = 1_024, 16, (32, 128)
AT_LEAST = {"Triton": 1.1, "LitServe": 1.7, "BentoML": 1.7, "Ray Serve": 1.7}
OF_BARE = 0.95
WARM_S = 0.5
SAME = 0.9999  # the cosine from which two vectors are the same one


class Run(NamedTuple):
    """One run of a server, and what the bare model did beside it."""

    per_s: float
    p99_ms: float
    share: float  # of the ceiling


class Bare:
    """The model in a plain loop."""

    def __init__(self, texts: Sequence[str]) -> None:
        from twoshift.wiring.model_loading import load_model

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


def shown(name: str, clients: int, run: Run) -> str:
    return (
        f"{name:10} {clients:4} clients: {run.per_s:6.1f} requests/s, p99 {run.p99_ms:6.1f} ms, {run.share:.3f} of bare"
    )


def measure(peer: Peer, bare: Bare, texts: Sequence[str], seconds: float, slices: int) -> dict[int, Run]:
    """For each number of clients the median of short runs, each between two stretches of the ceiling."""
    found = dict[int, Run]()
    requests = [peer.faces["minilm"].request(text) for text in texts]
    with served(peer, texts, bare.vector) as port:
        for clients in CLIENTS:
            runs, failures = list[Run](), ""
            plan = Plan(port=port, requests=requests, clients=clients, seconds=seconds / slices, warm_s=WARM_S)
            before, _ = bare.run(clients, plan.seconds / 2)
            for _ in range(slices):
                report = run_load(plan)
                after, _ = bare.run(clients, plan.seconds / 2)
                runs.append(Run(report.ok_per_s, report.ok.p99_ms, 2 * report.ok_per_s / (before + after)))
                before, failures = after, failures or report.failures
            found[clients] = median(runs)
            print(f"  {shown(peer.name, clients, found[clients])}{failures}", flush=True)
    return found


def median(runs: Sequence[Run]) -> Run:
    return Run(*map(statistics.median, zip(*runs, strict=True)))


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a server in a turn, for each number of clients")
    parser.add_argument("--slices", type=int, default=5, help="that they are cut into")
    parser.add_argument("--turns", type=int, default=2)
    add_choice(parser)
    options = parser.parse_args()
    forget_profiles()
    texts = queries(find_minilm() / "tokenizer.json", QUERIES, TOKENS)
    bare = Bare(texts)
    runs = take_turns(
        [TWOSHIFT, *chosen(options)],
        lambda peer: measure(peer, bare, texts, options.seconds, options.slices),
        options.turns,
    )
    for clients in CLIENTS:
        alone_per_s, call_ms = bare.run(clients, options.seconds)
        ours = median([each[clients] for each in runs[TWOSHIFT.name]])
        print(f"{clients} clients: bare loop {alone_per_s:.1f} requests/s, p99 of a call {call_ms:.1f} ms")
        print(f"  of the bare loop: {ours.share:.3f} (at least {OF_BARE})")
        for name, at_least in AT_LEAST.items():
            if name in runs:
                theirs = median([each[clients] for each in runs[name]])
                print(
                    f"  times {name}: {ours.share / theirs.share:.2f} (at least {at_least}); "
                    f"p99 {ours.p99_ms:.1f} ms to {theirs.p99_ms:.1f} (lower)"
                )


if __name__ == "__main__":
    main()
