"""Graphs under TWOSHIFT_HOME/models/<checksum>/, whole or not there at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from twoshift.durable import sync_directory
from twoshift.errors import Broken, InvalidInput
from twoshift.runtime.artifacts import checksum_of_files
from twoshift.runtime.encoder.fields import small_file

__all__ = ["DIGEST_FILE", "GRAPH_FILE", "WEIGHTS_FILE", "GraphCache"]

GRAPH_FILE, WEIGHTS_FILE, DIGEST_FILE = "encoder.onnx", "encoder.weights", "encoder.sha256"
_ABANDONED_S = 3600.0  # a folder that a killed process left behind; writing one takes seconds


class GraphCache:
    """One folder a graph. Two processes may make the same one at once: the first to publish wins."""

    def __init__(self, root: Path, checksum: str, variant: str) -> None:
        self._root = root / "models" / checksum.removeprefix("sha256:")
        self._variant = variant

    def get(self, write: Callable[[Path, Path], None]) -> Path:
        """The graph's path, written by `write(graph, weights)` where it is not there whole; raises InvalidInput."""
        folder = self._root / self._variant
        there = os.path.lexists(folder)  # before it is checked: what another process publishes since is whole
        if not there or not _is_whole(folder):
            if there:
                self.forget()
            with self._writable(), self._staging() as staging:
                write(staging / GRAPH_FILE, staging / WEIGHTS_FILE)
                (staging / DIGEST_FILE).write_text(_digest(staging))
                _publish(staging, folder)
        return folder / GRAPH_FILE

    def forget(self) -> None:
        """Throw away a graph that is damaged or does not load, so that the next `get` makes it anew."""
        folder = self._root / self._variant
        with self._writable():
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.unlink(missing_ok=True)

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
        if not _is_whole(folder):  # otherwise another process was first, with the same bytes
            raise
    sync_directory(folder.parent)


def _is_whole(folder: Path) -> bool:
    """Whether the graph and its weights are there as they were written: a disk may have damaged them since."""
    try:
        files_there = all((folder / name).is_file() for name in (GRAPH_FILE, WEIGHTS_FILE))
        return files_there and small_file(folder / DIGEST_FILE).decode() == _digest(folder)
    except (OSError, ValueError, Broken):
        return False


def _digest(folder: Path) -> str:
    return checksum_of_files([folder / GRAPH_FILE, folder / WEIGHTS_FILE])
