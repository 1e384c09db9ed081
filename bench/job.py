"""A whole job, Parquet to Parquet, against its ceiling and against what people run today.

MiniLM in fp32 on the CPU, 4,000 documents with a long tail of lengths (lognormal, mean 65 tokens). The ceiling is the
bare model over calls that are tokenised and sorted by length beforehand, nothing read and nothing written. The peers
read and write the same Parquet; their steady rate leaves out what they take to start. The speed of a shared machine
changes by the minute, so a stretch of the ceiling is measured before and after each run, and a run counts as a share of
the two; of several turns the median counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _corpus import documents
from _environments import variables
from _job_peers import PEERS
from _servers import Skipped
from encoder_cpu import bare

os.environ.setdefault("HF_HUB_OFFLINE", "1")
AT_LEAST = {
    "sentence-transformers": 1.35,
    "Ray Data, the same runtime": 1.5,
    "Ray Data, the same and its packing": 1.0,
    "Ray Data, sentence-transformers": 1.9,
    "Daft, sentence-transformers": 1.0,
    "Spark, sentence-transformers": 1.0,
}


CEILING_ROWS = 1_000


class Took(NamedTuple):
    """A run's seconds: of the work itself, and with its start."""

    steady_s: float
    seconds: float


Shares = dict[str, list[Took]]


def job(source: Path, output: Path) -> Took:
    """`twoshift run` as a user would; from its first shard to its last commit, and the whole command."""
    began_s = time.perf_counter()
    words = [sys.executable, "-m", "twoshift", "run", str(source), "--model", "minilm", "--text", "body"]
    done = subprocess.run([*words, "--keep", "id", "-o", str(output), "--json"], capture_output=True, check=True)
    return Took(float(json.loads(done.stdout)["seconds"]), time.perf_counter() - began_s)


def peer(name: str, source: Path, output: Path) -> Took:
    """Another system, in a process and an environment of its own; raises Skipped where it cannot run."""
    python = PEERS[name].environment.python()
    words = [str(python), str(Path(__file__).with_name("_job_peers.py")), name, str(source), str(output)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **variables()})
    if done.returncode:
        raise Skipped(f"{name} failed:\n{done.stderr[-2000:]}")
    return Took(**json.loads(done.stdout.splitlines()[-1]))


def tokens(texts: Sequence[str]) -> int:
    """Every word is one, and two are the tokenizer's own."""
    return sum(len(text.split()) + 2 for text in texts)


def measure(
    runs: dict[str, Callable[[], Took]], ceiling: Callable[[], object], scale: float, rows: int, turns: int
) -> Shares:
    """Each run's rates, steady and with its start, as shares of the ceiling beside it; turn by turn.

    The ceiling is measured on a part of the documents; `scale` is what all of them are to it, by tokens.
    """

    def ceiling_s() -> float:
        began_s = time.perf_counter()
        ceiling()
        return (time.perf_counter() - began_s) * scale

    runs, shares = dict(runs), Shares((name, []) for name in runs)
    for turn in range(turns):
        before_s = ceiling_s()
        for name, run in tuple(runs.items()):
            try:
                took = run()
            except Skipped as why:
                print(f"  left out: {why}", flush=True)
                del runs[name], shares[name]
                continue
            after_s = ceiling_s()
            bare_s = (before_s + after_s) / 2
            shares[name].append(Took(bare_s / took.steady_s, bare_s / took.seconds))
            steady, whole = (rows / each for each in took)
            print(
                f"  turn {turn + 1}: {name:34} {steady:6.1f} docs/s, {whole:6.1f} with its start; {rows / bare_s:6.1f} "
                f"bare beside it: {shares[name][-1].steady_s:.2f}, {shares[name][-1].seconds:.2f}",
                flush=True,
            )
            before_s = after_s
    return shares


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=list(PEERS), help="the peers, by name")
    options = parser.parse_args()
    texts = documents(find_minilm() / "tokenizer.json", options.documents, 65, 250)
    with tempfile.TemporaryDirectory() as folder:
        source, outputs = Path(folder) / "docs.parquet", (Path(folder) / f"out{k}" for k in itertools.count())
        pq.write_table(pa.table({"id": np.arange(len(texts)), "body": texts}), source)
        runs: dict[str, Callable[[], Took]] = {"twoshift run": lambda: job(source, next(outputs))}
        runs |= {name: lambda name=name: peer(name, source, next(outputs)) for name in options.only}
        some = texts[:: max(1, len(texts) // CEILING_ROWS)]
        ceiling, scale = bare("openvino", some), tokens(texts) / tokens(some)
        ceiling()
        shares = measure(runs, ceiling, scale, len(texts), options.turns)
    medians = {name: Took(*map(statistics.median, zip(*each, strict=True))) for name, each in shares.items()}
    ours = medians.pop("twoshift run")
    print(f"of the ceiling: {ours.steady_s:.3f} (at least 0.95)")
    for name, theirs in medians.items():
        steady, whole = ours.steady_s / theirs.steady_s, ours.seconds / theirs.seconds
        print(f"times {name}: {steady:.2f} (at least {AT_LEAST[name]}), {whole:.2f} with the start of both")


if __name__ == "__main__":
    main()
