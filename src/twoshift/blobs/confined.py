"""Files below some roots, and no others: each is looked at again when it is used."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from twoshift.blobs.roots import Roots
from twoshift.errors import InvalidInput, NotFound
from twoshift.ports import Blob, Blobs

__all__ = ["ConfinedBlobs"]


class ConfinedBlobs:
    """Other blobs, of which only places below the roots are touched; raises InvalidInput for the rest.

    A file of this machine is looked at again once it is open: a link that was put in its place meanwhile leads nowhere.
    """

    def __init__(self, inner: Blobs, roots: Roots) -> None:
        self._inner, self._roots = inner, roots

    def stat(self, location: str) -> Blob | None:
        """The file of that name; None where there is none."""
        self._roots.check(location)
        return self._inner.stat(location)

    def list(self, prefix: str) -> builtins.list[Blob]:
        """Every file below a folder, sorted by location; what lies outside the roots is as if it were not there."""
        self._roots.check(prefix)
        try:
            found = [blob for blob in self._inner.list(prefix) if self._roots.holds(blob.location)]
        except NotFound as error:
            if error.field != "folder":
                raise
            found = []
        if not found:  # one message, or it would tell that others have files there
            raise NotFound("folder", prefix, "a folder with at least one file")
        return found

    def names(self, prefix: str) -> set[str]:
        """The names of the files right in a folder; none where there is no folder."""
        self._roots.check(prefix)
        return self._inner.names(prefix)

    def open(self, location: str) -> BinaryIO:
        """The file, buffered and seekable; raises InvalidInput where there is none."""
        self._roots.check(location)
        opened = self._inner.open(location)
        if "://" not in location and not self._roots.holds_file(_opened_path(opened, location)):
            opened.close()
            raise InvalidInput(
                "location", location, "a file that is not replaced by a symbolic link while it is being read"
            )
        return opened

    def read(self, location: str) -> bytes | None:
        """A small file; None where there is none."""
        if "://" in location:
            self._roots.check(location)
            return self._inner.read(location)
        if self.stat(location) is None:
            return None
        with self.open(location) as file:
            return file.read()

    def write(self, location: str, data: bytes) -> None:
        """Put a small file there, or replace it: a reader sees the old or the new one, whole."""
        self._roots.check(location)
        self._inner.write(location, data)

    def create(self, location: str, data: bytes) -> bool:
        """Put a small file there if there is none; whether it did."""
        self._roots.check(location)
        return self._inner.create(location, data)

    def staging(self, location: str) -> Path:
        """The local folder in which a file is written that will be published at that location."""
        self._roots.check(location)
        folder = self._inner.staging(location)
        if "://" not in location:
            self._roots.check(str(folder))
        return folder

    def publish(self, staged: Path, location: str) -> bool:
        """Put a staged file there, whole, if there is none; whether it did. The staged file is then gone."""
        self._roots.check(location)
        return self._inner.publish(staged, location)

    def write_large(self, location: str, chunks: Callable[[], Iterator[bytes]], size_bytes: int) -> None:
        """Put a file of any size there, or replace it, whole; nothing where the chunks raise."""
        self._roots.check(location)
        self._inner.write_large(location, chunks, size_bytes)

    def write_unnamed(self, folder: str, chunks: Iterator[bytes], location: Callable[[], str | None]) -> bool:
        """Put a file of any size below a folder, where `location` says after its last chunk; None: nowhere."""
        self._roots.check(folder)

        def checked() -> str | None:
            if (found := location()) is not None:
                self._roots.check(found)
            return found

        return self._inner.write_unnamed(folder, chunks, checked)

    def delete(self, location: str) -> None:
        """Remove the file, if there is one."""
        self._roots.check(location)
        self._inner.delete(location)

    def sweep(self, prefix: str) -> int:
        """Remove what writers that were killed have left below a folder; how many files."""
        self._roots.check(prefix)
        return self._inner.sweep(prefix)


def _opened_path(opened: BinaryIO, location: str) -> str:
    """Where the open file really lies; the root of all where nobody can tell."""
    try:
        return os.readlink(f"/proc/self/fd/{opened.fileno()}")  # noqa: PTH115 - as the system says it
    except FileNotFoundError:  # no Linux
        real = os.path.realpath(location)
        return real if os.path.samestat(os.fstat(opened.fileno()), Path(real).stat()) else os.sep
