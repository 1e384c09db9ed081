"""The port of an index library: vectors in, a folder of files out, and a search over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["RESTORE", "Found", "IndexLibrary", "IndexShape", "Searcher", "VectorSet", "Vectors"]

Vectors = NDArray[np.float32]  # a row each

RESTORE = "restore the file from a backup, or run the job again with another output folder"  # how to repair an index


class IndexShape(NamedTuple):
    """What an index is made for."""

    metric: str
    dims: int


class Found(NamedTuple):
    """For each query its nearest vectors, the best first: their places, -1 where there are no more, and scores.

    A larger score is better: the cosine, the inner product, or the negative Euclidean distance.
    """

    places: NDArray[np.int64]
    scores: Vectors


class VectorSet(Protocol):
    """Vectors that need not fit into memory; a vector's place is its number in their order."""

    @property
    def count(self) -> int: ...

    @property
    def dims(self) -> int: ...

    def chunks(self) -> Iterator[Vectors]:
        """All of them in order, some thousands at a time; may be asked again."""
        ...

    def take(self, places: NDArray[np.int64]) -> Vectors:
        """Those at these places, which rise."""
        ...


class Searcher(Protocol):
    """An index that is open; any thread may ask it."""

    def search(self, queries: Vectors, most: int, effort: int) -> Found:
        """At most so many of the nearest for each query."""
        ...


class IndexLibrary(Protocol):
    """A library that builds indexes and searches them."""

    @property
    def efforts(self) -> tuple[int, ...]:
        """How much of the index a search looks at, rising: the least that is good enough is used."""
        ...

    def module(self) -> Any:
        """The library itself; raises NotInstalled."""
        ...

    def memory_bytes(self, rows: int, dims: int) -> int:
        """About what building needs beside the vectors' files."""
        ...

    def build(self, vectors: VectorSet, shape: IndexShape, folder: Path) -> Iterator[int]:
        """Write the index into an empty folder; yields how many vectors it has, as it goes."""
        ...

    def open(self, folder: Path, shape: IndexShape) -> Searcher:
        """An index that was built."""
        ...
