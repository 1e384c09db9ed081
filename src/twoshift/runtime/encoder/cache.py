"""Graphs under TWOSHIFT_HOME/models/<checksum>/, whole or not there at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from twoshift.durable import sync_directory
from twoshift.errors import InvalidInput

__all__ = ["GRAPH_FILE", "WEIGHTS_FILE", "GraphCache"]

GRAPH_FILE, WEIGHTS_FILE = "encoder.onnx", "encoder.weights"
_ABANDONED_S = 3600.0  # a folder that a killed process left behind; writing one takes seconds


class GraphCache:
    """One folder a graph. Two processes may make the same one at once: the first to publish wins."""

    def __init__(self, root: Path, checksum: str, variant: str) -> None:
        self._root = root / "models" / checksum.removeprefix("sha256:")
        self._variant = variant

    def get(self, write: Callable[[Path, Path], None]) -> Path:
        """The graph's path, written by `write(graph, weights)` where it is not there; raises InvalidInput."""
        folder = self._root / self._variant
        if not (folder / GRAPH_FILE).is_file():
            with self._writable(), self._staging() as staging:
                write(staging / GRAPH_FILE, staging / WEIGHTS_FILE)
                _publish(staging, folder)
        return folder / GRAPH_FILE

    def forget(self) -> None:
        """Throw away a graph that does not load, so that the next `get` makes it anew."""
        with self._writable():
            shutil.rmtree(self._root / self._variant, ignore_errors=True)

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        self._root.mkdir(parents=True, exist_ok=True)
        self._sweep()
        staging = Path(tempfile.mkdtemp(dir=self._root, prefix=f".{self._variant}."))
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _sweep(self) -> None:
        for left in self._root.glob(".*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(left, ignore_errors=True)

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            accepted = f"a folder that can be written, for the model's graph ({error.strerror or error})"
            raise InvalidInput("TWOSHIFT_HOME", str(self._root.parent.parent), accepted) from error


def _publish(staging: Path, folder: Path) -> None:
    """Rename the whole folder: a reader sees all of it or nothing. The files themselves are synced by their writer."""
    sync_directory(staging)
    try:
        staging.rename(folder)
    except OSError:
        if not (folder / GRAPH_FILE).is_file():  # otherwise another process was first, with the same bytes
            raise
    sync_directory(folder.parent)
