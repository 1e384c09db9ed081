"""usearch: one HNSW graph in a file that is mapped, not read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twoshift.errors import Broken
from twoshift.extras import needed
from twoshift.vectors.library import RESTORE, Found, IndexShape, Vectors, VectorSet

__all__ = ["UsearchLibrary"]

_FILE = "vectors.usearch"
_METRICS = {"cos": "cos", "ip": "ip", "l2": "l2sq"}
_CONNECTIVITY, _EXPANSION_ADD = 16, 64
_GRAPH_BYTES = 300  # of a vector's edges


class UsearchLibrary:
    """An IndexLibrary."""

    efforts = (64, 128, 256, 512, 1024)

    def module(self) -> Any:
        """usearch; raises NotInstalled."""
        return needed("usearch.index", "index", _FILE, "index")

    def memory_bytes(self, rows: int, dims: int) -> int:
        """The whole graph, in half precision."""
        return rows * (2 * dims + _GRAPH_BYTES)

    def build(self, vectors: VectorSet, shape: IndexShape, folder: Path) -> Iterator[int]:
        """A graph cannot be merged from others: the vectors are inserted into one, by all cores."""
        # Unit vectors keep their neighbours in half precision; others may not fit into it
        dtype = "f16" if shape.metric == "cos" else "f32"
        index = self.module().Index(
            ndim=shape.dims, metric=_METRICS[shape.metric], dtype=dtype,
            connectivity=_CONNECTIVITY, expansion_add=_EXPANSION_ADD,
        )  # fmt: skip
        done = 0
        for chunk in vectors.chunks():
            index.add(np.arange(done, done + len(chunk), dtype=np.uint64), chunk, threads=0)
            done += len(chunk)
            yield done
        path = folder / _FILE
        try:
            index.save(str(path))
        except RuntimeError as error:  # it has no type for a full disk, and does not always say so
            is_full = "serialize" in str(error)
            raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error), str(path)) from error
        if path.stat().st_size < done * shape.dims * (2 if dtype == "f16" else 4):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def open(self, folder: Path, shape: IndexShape) -> UsearchSearcher:
        """Mapped: several processes share its pages, and none reads more than it looks at."""
        try:
            index = self.module().Index.restore(str(folder / _FILE), view=True)
        except (ValueError, RuntimeError) as error:
            raise Broken(f"the vector index {folder / _FILE} is damaged ({error}): {RESTORE}") from error
        if index is None or index.ndim != shape.dims:
            what = f"the vectors of the index {folder / _FILE} do not have {shape.dims} dimensions"
            raise Broken(f"{what}: {RESTORE}")
        return UsearchSearcher(index, shape)


class UsearchSearcher:
    """A Searcher."""

    def __init__(self, index: Any, shape: IndexShape) -> None:
        self._index, self._shape = index, shape

    def search(self, queries: Vectors, most: int, effort: int) -> Found:
        """At most so many of the nearest for each query."""
        index = self._index
        if index.expansion_search != effort:
            index.expansion_search = effort
        places = np.full((len(queries), most), -1, np.int64)
        distances = np.zeros((len(queries), most), np.float32)
        if len(queries) == 1:  # of one query the library gives another type
            found = index.search(queries[0], most, threads=1)
            places[0, : len(found.keys)], distances[0, : len(found.keys)] = found.keys, found.distances
        elif len(queries):
            found = index.search(queries, most, threads=0)
            is_there = np.arange(most) < found.counts[:, None]
            places[is_there], distances[is_there] = found.keys[is_there], found.distances[is_there]
        return Found(places, -np.sqrt(distances) if self._shape.metric == "l2" else 1 - distances)
