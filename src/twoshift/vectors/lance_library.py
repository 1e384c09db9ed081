"""Lance: a dataset on disk with an index of its own, which is read as it is searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from twoshift.errors import Broken
from twoshift.extras import needed
from twoshift.vectors.library import RESTORE, Found, IndexShape, Vectors, VectorSet

__all__ = ["LanceLibrary"]

_FOLDER = "vectors.lance"
_METRICS = {"cos": "cosine", "ip": "dot", "l2": "l2"}
_FEW = 5_000  # fewer are searched one by one
_PARTITION_ROWS = 50_000
_REFINED = 4  # candidates for each result, which are compared again in full precision


class LanceLibrary:
    """An IndexLibrary."""

    efforts = (4, 16, 64, 256)

    def module(self) -> Any:
        """lance; raises NotInstalled."""
        return needed("lance", "lance", _FOLDER, "index")

    def memory_bytes(self, rows: int, dims: int) -> int:
        """A few partitions: the rest stays on disk."""
        return 4 * min(rows, _PARTITION_ROWS) * (4 * dims + 300)

    def build(self, vectors: VectorSet, shape: IndexShape, folder: Path) -> Iterator[int]:
        """Vectors are written as they come; the index is made of what lies on disk."""
        schema = pa.schema([("place", pa.int64()), ("vector", pa.list_(pa.float32(), shape.dims))])
        batches = (_batch(schema, chunk, done) for chunk, done in _numbered(vectors))
        data = self.module().write_dataset(
            pa.RecordBatchReader.from_batches(schema, batches), str(folder / _FOLDER), schema
        )
        if vectors.count >= _FEW:
            data.create_index(
                "vector", "IVF_HNSW_SQ", metric=_METRICS[shape.metric],
                num_partitions=max(1, vectors.count // _PARTITION_ROWS),
            )  # fmt: skip
        yield vectors.count

    def open(self, folder: Path, shape: IndexShape) -> LanceSearcher:
        """Nothing is read yet but its manifest."""
        try:
            data = self.module().dataset(str(folder / _FOLDER))
        except (ValueError, OSError) as error:
            raise Broken(f"the vector index {folder / _FOLDER} is damaged ({error}): {RESTORE}") from error
        if data.schema.field("vector").type.list_size != shape.dims:
            what = f"the vectors of the index {folder / _FOLDER} do not have {shape.dims} dimensions"
            raise Broken(f"{what}: {RESTORE}")
        return LanceSearcher(data, shape)


class LanceSearcher:
    """A Searcher."""

    def __init__(self, data: Any, shape: IndexShape) -> None:
        self._data, self._shape = data, shape

    def search(self, queries: Vectors, most: int, effort: int) -> Found:
        """At most so many of the nearest for each query."""
        places = np.full((len(queries), most), -1, np.int64)
        distances = np.zeros((len(queries), most), np.float32)
        for row, query in enumerate(queries):
            nearest = {
                "column": "vector", "q": query, "k": most, "metric": _METRICS[self._shape.metric],
                "nprobes": effort, "refine_factor": _REFINED,
            }  # fmt: skip
            found = self._data.to_table(columns=["place", "_distance"], nearest=nearest)
            places[row, : len(found)] = found.column("place").to_numpy()
            distances[row, : len(found)] = found.column("_distance").to_numpy()
        if self._shape.metric == "l2":
            return Found(places, -np.sqrt(np.maximum(distances, 0)))
        return Found(places, 1 - distances)


def _numbered(vectors: VectorSet) -> Iterator[tuple[Vectors, int]]:
    done = 0
    for chunk in vectors.chunks():
        yield chunk, done
        done += len(chunk)


def _batch(schema: pa.Schema, chunk: Vectors, first: int) -> pa.RecordBatch:
    places = pa.array(np.arange(first, first + len(chunk)))
    rows = pa.FixedSizeListArray.from_arrays(pa.array(chunk.reshape(-1)), chunk.shape[1])
    return pa.record_batch([places, rows], schema=schema)
