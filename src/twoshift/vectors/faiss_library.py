"""faiss: inverted lists of vectors in half precision; small sets are searched as they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twoshift.errors import Broken
from twoshift.extras import needed
from twoshift.vectors.library import RESTORE, Found, IndexShape, Vectors, VectorSet

__all__ = ["FaissLibrary"]

_FILE = "vectors.faiss"
_FEW = 10_000  # fewer are searched one by one, at once
_TRAINED_PER_LIST, _ROUNDS = 64, 10  # of k-means


class FaissLibrary:
    """An IndexLibrary."""

    efforts = (8, 16, 32, 64, 128, 256)

    def module(self) -> Any:
        """faiss; raises NotInstalled."""
        return needed("faiss", "faiss", _FILE, "index")

    def memory_bytes(self, rows: int, dims: int) -> int:
        """All vectors in half precision, and those that the lists are trained on."""
        return rows * (2 * dims + 8) + 4 * dims * min(rows, _TRAINED_PER_LIST * _lists(rows))

    def build(self, vectors: VectorSet, shape: IndexShape, folder: Path) -> Iterator[int]:
        """Centres are found on a sample, then each vector goes into the list of its nearest one."""
        faiss, rows = self.module(), vectors.count
        metric = faiss.METRIC_L2 if shape.metric == "l2" else faiss.METRIC_INNER_PRODUCT
        half = "SQfp16" if shape.metric == "cos" else "Flat"  # others may not fit into half precision
        index = faiss.index_factory(shape.dims, "Flat" if rows < _FEW else f"IVF{_lists(rows)},{half}", metric)
        if rows >= _FEW:
            index.cp.niter, index.cp.max_points_per_centroid = _ROUNDS, _TRAINED_PER_LIST
            chosen = np.random.default_rng(0).choice(rows, min(rows, _TRAINED_PER_LIST * _lists(rows)), replace=False)
            index.train(vectors.take(np.sort(chosen)))
        for chunk in vectors.chunks():
            index.add(chunk)
            yield index.ntotal
        try:
            faiss.write_index(index, str(folder / _FILE))
        except RuntimeError as error:  # it has no type for a full disk
            raise OSError(str(error)) from error

    def open(self, folder: Path, shape: IndexShape) -> FaissSearcher:
        """All of it is read into memory."""
        faiss = self.module()
        try:
            index = faiss.read_index(str(folder / _FILE))
        except RuntimeError as error:
            raise Broken(f"the vector index {folder / _FILE} is damaged ({error}): {RESTORE}") from error
        if index.d != shape.dims:
            what = f"the vectors of the index {folder / _FILE} do not have {shape.dims} dimensions"
            raise Broken(f"{what}: {RESTORE}")
        return FaissSearcher(faiss, index, shape)


class FaissSearcher:
    """A Searcher."""

    def __init__(self, faiss: Any, index: Any, shape: IndexShape) -> None:
        self._index, self._shape = index, shape
        self._parameters = faiss.SearchParametersIVF if hasattr(index, "nprobe") else None

    def search(self, queries: Vectors, most: int, effort: int) -> Found:
        """At most so many of the nearest for each query."""
        params = None if self._parameters is None else self._parameters(nprobe=effort)
        values, places = self._index.search(queries, most, params=params)
        if self._shape.metric == "l2":
            values = -np.sqrt(np.maximum(values, 0))
        return Found(places, values)


def _lists(rows: int) -> int:
    return max(1, int(4 * math.sqrt(rows)))
