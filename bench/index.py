"""An index beside a job's vectors: how fast each library builds one, against how fast minilm makes the vectors.

`python bench/index.py [ROWS] [LIBRARY ...]`: vectors of 384 dimensions, clustered as embeddings are, through the code
that a job runs at its end: pieces, one generation, recall@10 at the effort that a search uses, one query at a time. The
last figure is rows a second of building over rows a second of minilm on this machine: above 1, embedding is the slower
half. Building is bound by the cores: usearch and Lance compare each vector with hundreds of others to find its edges,
faiss with every centre of its lists.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from twoshift import load_model
from twoshift.blobs.local import LocalBlobs
from twoshift.vectors.building import BuildTask, build_generation
from twoshift.vectors.generations import switch
from twoshift.vectors.library import IndexShape, Vectors
from twoshift.vectors.names import LIBRARY_NAMES
from twoshift.vectors.pieces import piece_batch, piece_schema
from twoshift.vectors.searching import OpenIndex, open_current

DIMS, PIECE_ROWS, EMBEDDED = 384, 16_384, 512
ROWS = 100_000
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "and",
    "runs",
    "from",
    "an",
    "old",
    "house",
]


def main(rows: int, libraries: list[str]) -> None:
    """One line for each library."""
    embedded_per_s = embedding_rate()
    print(f"minilm: {embedded_per_s:,.0f} rows/s embedded here, texts of 16 words")
    with tempfile.TemporaryDirectory(prefix="twoshift-index-") as folder:
        pieces = written(Path(folder), rows)
        for library in libraries:
            measure(Path(folder), library, pieces, embedded_per_s)


def embedding_rate() -> float:
    """Of the model alone: the most that a job could have."""
    runtime = load_model("minilm")
    rng = np.random.default_rng(0)
    rows = runtime.prepare([" ".join(rng.choice(WORDS, 16)) for _ in range(EMBEDDED)])
    runtime.launch([rows.slice(0, 64)]).wait()
    began_s = time.monotonic()
    for start in range(0, EMBEDDED, 64):
        runtime.launch([rows.slice(start, start + 64)]).wait()
    elapsed_s = time.monotonic() - began_s
    runtime.close()
    return EMBEDDED / elapsed_s


def written(folder: Path, rows: int) -> list[Path]:
    """The pieces that workers would have left."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((max(20, rows // 200), DIMS)).astype(np.float32)
    schema, paths = piece_schema(DIMS, pa.int64()), list[Path]()
    for start in range(0, rows, PIECE_ROWS):
        count = min(PIECE_ROWS, rows - start)
        near = centres[rng.integers(0, len(centres), count)]
        vectors = near + 0.7 * rng.standard_normal((count, DIMS)).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMS)
        batch = pa.record_batch({"id": np.arange(start, start + count), "embedding": column})
        paths.append(folder / f"piece-{start}.arrow")
        with pa.ipc.new_file(str(paths[-1]), schema) as writer:
            writer.write_batch(piece_batch(batch, "embedding", "id", schema))
    return paths


def measure(folder: Path, library: str, pieces: list[Path], embedded_per_s: float) -> None:
    """Build, switch and search."""
    blobs, index = LocalBlobs(), str(folder / f"vectors.{library}")
    shape = IndexShape("cos", DIMS)
    task = BuildTask(index, "bench", library, shape, "id", "minilm", "", "fp32", str(folder))
    made = build_generation(blobs, task, lambda _: pieces, lambda _: None)
    size = sum(made.files.values())
    assert switch(blobs, index, made, min(0.95, made.best_recall))
    opened = open_current(lambda _: blobs, index)
    assert opened is not None
    queries: Vectors = np.random.default_rng(1).standard_normal((200, DIMS)).astype(np.float32)
    times = sorted(_search_s(opened, query[None]) for query in queries)
    print(
        f"{library}: {made.rows_per_s:,.0f} rows/s ({made.rows:,} in {made.build_s:.1f} s, {size / 1e6:,.0f} MB); "
        f"recall@10 {opened.pointer.recall:.4f} at effort {opened.pointer.effort}; a query {1e3 * times[100]:.2f} ms "
        f"at the median, {1e3 * times[197]:.2f} ms at p99; {made.rows_per_s / embedded_per_s:.1f} times embedding"
    )


def _search_s(index: OpenIndex, query: Vectors) -> float:
    began_s = time.monotonic()
    index.search(query, 10)
    return time.monotonic() - began_s


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(float(given[0])) if given and given[0][0].isdigit() else ROWS,
         [each for each in given if each in LIBRARY_NAMES] or list(LIBRARY_NAMES))  # fmt: skip
