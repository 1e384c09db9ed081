"""Folders under TWOSHIFT_HOME/models/<checksum>/ that are made once: whole or not there at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from twoshift.durable import sync_directory
from twoshift.errors import InvalidInput
from twoshift.runtime.artifacts import checksum_of_files

__all__ = ["FolderCache"]

_ABANDONED_S = 3600.0  # a folder that a killed process left behind; writing one takes seconds
_MOST_DIGEST_BYTES = 1000


class FolderCache:
    """One folder a variant. Two processes may make the same one at once: the first to publish wins."""

    def __init__(self, root: Path, checksum: str, variant: str, what: str, digest_file: str) -> None:
        self._root = root / "models" / checksum.removeprefix("sha256:")
        self._variant, self._what, self._digest_file = variant, what, digest_file

    @property
    def folder(self) -> Path:
        """Where it lies, once it is made."""
        return self._root / self._variant

    def get(self, write: Callable[[Path], None]) -> Path:
        """The folder, filled by `write(folder)` where it is not there whole; raises InvalidInput."""
        there = os.path.lexists(self.folder)  # before it is checked: what another process publishes since is whole
        if not there or not self._is_whole():
            if there:
                self.forget()
            with self._writable(), self._staging() as staging:
                write(staging)
                (staging / self._digest_file).write_text(self._digest(staging))
                self._publish(staging)
        return self.folder

    def forget(self) -> None:
        """Throw away what is damaged or does not load, so that the next `get` makes it anew."""
        with self._writable():
            if self.folder.is_dir() and not self.folder.is_symlink():
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                self.folder.unlink(missing_ok=True)

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
            accepted = f"a folder in which {self._what} can be stored ({error.strerror or error})"
            raise InvalidInput("TWOSHIFT_HOME", str(self._root.parent.parent), accepted) from error

    def _publish(self, staging: Path) -> None:
        """Rename the whole folder: a reader sees all of it or nothing. The files are synced by their writer."""
        sync_directory(staging)
        try:
            staging.rename(self.folder)
        except OSError:
            if not self._is_whole():  # otherwise another process was first, with the same bytes
                raise
        sync_directory(self.folder.parent)

    def _is_whole(self) -> bool:
        """Whether everything is there as it was written: a disk may have damaged it since."""
        try:
            digest = self.folder / self._digest_file
            if digest.stat().st_size > _MOST_DIGEST_BYTES:
                return False
            return digest.read_bytes().decode() == self._digest(self.folder)
        except (OSError, ValueError):
            return False

    def _digest(self, folder: Path) -> str:
        return checksum_of_files(each for each in folder.iterdir() if each.name != self._digest_file)
