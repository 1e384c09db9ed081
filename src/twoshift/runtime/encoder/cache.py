"""Graphs under TWOSHIFT_HOME/models/<checksum>/, whole or not there at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twoshift.runtime.folder_cache import FolderCache

__all__ = ["DIGEST_FILE", "GRAPH_FILE", "WEIGHTS_FILE", "GraphCache"]

GRAPH_FILE, WEIGHTS_FILE, DIGEST_FILE = "encoder.onnx", "encoder.weights", "encoder.sha256"


class GraphCache:
    """One folder a graph."""

    def __init__(self, root: Path, checksum: str, variant: str) -> None:
        self._cache = FolderCache(root, checksum, variant, "the model's graph", DIGEST_FILE)

    def get(self, write: Callable[[Path, Path], None]) -> Path:
        """The graph's path, written by `write(graph, weights)` where it is not there whole; raises InvalidInput."""
        return self._cache.get(lambda folder: write(folder / GRAPH_FILE, folder / WEIGHTS_FILE)) / GRAPH_FILE

    def forget(self) -> None:
        """Throw away a graph that is damaged or does not load, so that the next `get` makes it anew."""
        self._cache.forget()
