"""A whole job on a GPU, Parquet to Parquet, as a share of what the engine alone reaches on the same documents.

Random weights of BERT-base size in bf16, documents of 4-510 tokens (lognormal, mean 90). The engine alone goes from
texts in memory to vectors in memory; `twoshift run` also reads, writes and commits, and its time is from its first
shard to its last commit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _corpus import documents
from _gpu import torch_on_gpu
from encoder_gpu import make_folder, start, throughput

os.environ.setdefault("HF_HUB_OFFLINE", "1")
FILES = 8


def job(model: Path, folder: Path, turn: int) -> dict[str, float]:
    """`twoshift run` as a user would."""
    output = folder / f"out{turn}"
    words = [sys.executable, "-m", "twoshift", "run", str(folder / "docs"), "--model", str(model), "--device", "cuda"]
    words += ["--text", "body", "--keep", "id", "-o", str(output), "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    report = json.loads((output / "_twoshift" / "report.json").read_text())
    return json.loads(done.stdout) | {"busy": report["busy"], "shards": report["shards"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch_on_gpu()
    from twoshift.runtime.encoder.folder import find_minilm

    tokenizer = find_minilm() / "tokenizer.json"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        model = make_folder(folder / "model", "bert-base", tokenizer)
        few = documents(tokenizer, 20_000, 90, 510)
        texts = [few[k % len(few)] for k in range(options.documents)]
        (folder / "docs").mkdir()
        for number, part in enumerate(np.array_split(np.arange(len(texts)), FILES)):
            table = pa.table({"id": part, "body": [texts[k] for k in part]})
            pq.write_table(table, folder / "docs" / f"{number}.parquet")
        bench = start(model, texts[:100_000])
        alone = throughput(bench)
        bench.engine.close()
        print(f"engine alone: {alone:,.0f} docs/s", flush=True)
        rates = []
        for turn in range(options.turns):
            told = job(model, folder, turn)
            rates.append(options.documents / told["seconds"])
            shape = f"{told['shards']} shards, device busy {told['busy']:.0%}, parity {told['parity']}"
            print(f"  turn {turn + 1}: twoshift run {rates[-1]:,.0f} docs/s, {shape}", flush=True)
        print(f"of the engine alone: {statistics.median(rates) / alone:.3f} (at least 0.9)")


if __name__ == "__main__":
    main()
