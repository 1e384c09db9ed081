"""The same job in what people run today: `python bench/_job_peers.py NAME SOURCE OUTPUT` prints its seconds as JSON.

Each reads the Parquet file, embeds the column `body` with MiniLM on two threads and writes Parquet with `id`, in an
environment of its own. `steady_s` is from the first batch to the last, `seconds` from the program's first line to its
last file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from _environments import Environment

BEGAN_S = time.time()
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="true", PYSPARK_PYTHON=sys.executable)
BATCH_ROWS, THREADS = 256, 2


class SentenceTransformers:
    """`encode` at its defaults."""

    def __init__(self) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        from twoshift.runtime.encoder.folder import find_minilm

        torch.set_num_threads(THREADS)
        self._model = SentenceTransformer(str(find_minilm()), device="cpu")

    def __call__(self, texts: list[str]) -> Any:
        return self._model.encode(texts, show_progress_bar=False)


class PlainRuntime:
    """The runtime that Twoshift uses, as people use it: calls of 32 rows as they come, padded to their longest."""

    def __init__(self) -> None:
        from twoshift.runtime.encoder.folder import read_minilm
        from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

        self._encoder = load_onnx_encoder(read_minilm(), "minilm", THREADS, "openvino")

    def __call__(self, texts: list[str]) -> Any:
        import numpy as np

        assert self._encoder._session is not None
        rows = self._encoder.prepare(texts)
        calls = [np.arange(at, min(len(texts), at + 32)) for at in range(0, len(texts), 32)]
        return np.concatenate(self._encoder._session.run([rows.padded(call, 0) for call in calls]))


class PackingRuntime:
    """All of Twoshift's runtime, a call a batch: its rows are sorted by length inside the call, with little padding."""

    def __init__(self) -> None:
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(THREADS)
        from twoshift import load_model

        self._runtime = load_model("minilm", device="cpu", threads=THREADS)

    def __call__(self, texts: list[str]) -> Any:
        return self._runtime.launch([self._runtime.prepare(texts)]).wait()["embedding"]


class Timed:
    """An embedder in whatever process it is made; notes when its batches began and ended."""

    def __init__(self, embedder: Callable[[], Callable[[list[str]], Any]], log: str) -> None:
        self._embed, self._log = embedder(), log

    def __call__(self, texts: list[str]) -> Any:
        began_s = time.time()
        vectors = self._embed(texts)
        with Path(self._log).open("a") as log:
            log.write(f"{began_s} {time.time()}\n")
        return vectors


def alone(source: str, output: str, log: str) -> None:
    """sentence-transformers by itself: read, encode, write."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    embed = Timed(SentenceTransformers, log)
    table = pq.read_table(source)
    vectors = embed(table["body"].to_pylist())
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vectors).reshape(-1)), vectors.shape[1])
    Path(output).mkdir()
    pq.write_table(pa.table({"id": table["id"], "embedding": flat}), f"{output}/part.parquet")


def ray_data(source: str, output: str, log: str, embedder: Any) -> None:
    """`map_batches` with one actor."""
    import ray

    class Embed:
        def __init__(self) -> None:
            self._embed = Timed(embedder, log)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {"id": batch["id"], "embedding": self._embed(batch["body"].tolist())}

    ray.init(num_cpus=THREADS, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.read_parquet(source)
    one = ray.data.ActorPoolStrategy(size=1)
    rows.map_batches(Embed, batch_size=BATCH_ROWS, compute=one, num_cpus=1).write_parquet(output)


def daft_udf(source: str, output: str, log: str) -> None:
    """A class with a batch method."""
    daft: Any = importlib.import_module("daft")  # only its own environment has it

    class Embed:
        def __init__(self) -> None:
            self._embed = Timed(SentenceTransformers, log)

        def __call__(self, texts: Any) -> Any:
            return list(self._embed(texts.to_pylist()))

    kind = daft.DataType.embedding(daft.DataType.float32(), 384)
    embed = daft.udf(return_dtype=kind, batch_size=BATCH_ROWS, concurrency=1)(Embed)
    frame = daft.read_parquet(source).with_column("embedding", embed(daft.col("body")))
    frame.select("id", "embedding").write_parquet(output)


def spark(source: str, output: str, log: str) -> None:
    """`mapInPandas`, one task at a time with both threads."""
    from pyspark.sql import SparkSession

    def embed(batches: Iterator[Any]) -> Iterator[Any]:
        model = Timed(SentenceTransformers, log)
        for batch in batches:
            vectors = model(batch["body"].tolist())
            yield batch[["id"]].assign(embedding=list(vectors))

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.read.parquet(source).mapInPandas(embed, "id long, embedding array<float>").write.parquet(output)


class Peer(NamedTuple):
    """A system: where it is installed, and the job in it."""

    environment: Environment
    run: Callable[[str, str, str], None]  # of a source, an output and a log


_ENCODE = ("sentence-transformers", "torch", "transformers")
_ALONE = Environment("sentence-transformers", (*_ENCODE, "pyarrow"))
_RAY = Environment("Ray Data", (*_ENCODE, "ray[data]"))
_DAFT = Environment("Daft", (*_ENCODE, "daft", "pyarrow<26"))  # it takes no newer one
_SPARK = Environment("Spark", (*_ENCODE, "pandas", "pyarrow", "pyspark"))
PEERS: dict[str, Peer] = {
    "sentence-transformers": Peer(_ALONE, alone),
    "Ray Data, the same runtime": Peer(_RAY, partial(ray_data, embedder=PlainRuntime)),
    "Ray Data, the same and its packing": Peer(_RAY, partial(ray_data, embedder=PackingRuntime)),
    "Ray Data, sentence-transformers": Peer(_RAY, partial(ray_data, embedder=SentenceTransformers)),
    "Daft, sentence-transformers": Peer(_DAFT, daft_udf),
    "Spark, sentence-transformers": Peer(_SPARK, spark),
}


def main() -> None:
    name, source, output = sys.argv[1:]
    log = f"{output}.log"
    Path(log).unlink(missing_ok=True)
    PEERS[name].run(source, output, log)
    ended_s = time.time()
    times = [tuple(map(float, line.split())) for line in Path(log).read_text().splitlines()]
    steady_s = max(end_s for _, end_s in times) - min(began_s for began_s, _ in times)
    print(json.dumps({"steady_s": steady_s, "seconds": ended_s - BEGAN_S}))


if __name__ == "__main__":
    main()
