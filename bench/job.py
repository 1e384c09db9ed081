"""A whole job, Parquet to Parquet, against its ceiling and against what people run today.

MiniLM in fp32 on the CPU, 4,000 documents with a long tail of lengths (lognormal, mean 65 tokens). The ceiling is the
bare model over calls that are tokenised and sorted by length beforehand, nothing read and nothing written; the peer is
sentence-transformers' encode at its defaults, with reading and writing by pyarrow. All take turns; the best counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _corpus import documents
from encoder_cpu import bare

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def job(source: Path, output: Path) -> float:
    """`twoshift run` as a user would; seconds of the run itself, from its own summary, without loading the model."""
    import json

    shutil.rmtree(output, ignore_errors=True)
    words = [sys.executable, "-m", "twoshift", "run", str(source), "--model", "minilm", "--text", "body"]
    done = subprocess.run([*words, "--keep", "id", "-o", str(output), "--json"], capture_output=True, check=True)
    return float(json.loads(done.stdout)["seconds"])


def peer(source: Path, output: Path) -> float:
    """Read, encode, write; the model is loaded."""
    from sentence_transformers import SentenceTransformer

    from twoshift.runtime.encoder.folder import find_minilm

    model = SentenceTransformer(str(find_minilm()), device="cpu")
    began_s = time.perf_counter()
    table = pq.read_table(source)
    vectors = model.encode(table["body"].to_pylist(), show_progress_bar=False)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vectors).reshape(-1)), vectors.shape[1])
    pq.write_table(pa.table({"id": table["id"], "embedding": flat}), output)
    return time.perf_counter() - began_s


def timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    texts = documents(find_minilm() / "tokenizer.json", options.documents, 65, 250)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "docs.parquet"
        pq.write_table(pa.table({"id": np.arange(len(texts)), "body": texts}), source)
        ceiling = bare("openvino", texts)
        runs: dict[str, Callable[[], float]] = {
            "twoshift run": lambda: job(source, Path(folder) / "out"),
            "bare OpenVINO, no files": lambda: timed(ceiling),
            "sentence-transformers": lambda: peer(source, Path(folder) / "peer.parquet"),
        }
        rates: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(options.turns):
            for name, run in runs.items():
                rates[name].append(len(texts) / run())
                print(f"  turn {turn + 1}: {name:26} {rates[name][-1]:7.1f} docs/s", flush=True)
    ours, bare_rate, theirs = (max(each) for each in rates.values())
    print(f"of the ceiling: {ours / bare_rate:.3f} (at least 0.95)")
    print(f"times sentence-transformers: {ours / theirs:.2f} (at least 1.35)")


if __name__ == "__main__":
    main()
