"""Files in local folders, published with hard links."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from twoshift.blobs.local_errors import explained
from twoshift.blobs.local_publish import link_if_absent, make_folder, sync_file
from twoshift.blobs.local_unfinished import is_unfinished, swept, unfinished
from twoshift.durable import sync_directory, write_all
from twoshift.errors import NotFound
from twoshift.ports import Blob

__all__ = ["LocalBlobs"]

_BUFFER_BYTES = 1 << 20
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_STAGING = Path("_twoshift", "staging")  # readers of datasets pass over names with an underscore


class LocalBlobs:
    """Files of this machine, or of a network drive that it has mounted."""

    def stat(self, location: str) -> Blob | None:
        """The file of that name; None where there is none."""
        with explained(location):
            try:
                found = Path(location).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _blob(location, found) if modes.S_ISREG(found.st_mode) else None

    def list(self, prefix: str) -> list[Blob]:
        """Every file below a folder, sorted by location; raises NotFound where there is nothing."""
        folder = _folder(prefix)
        with explained(prefix):
            if not os.path.lexists(folder or "."):
                raise NotFound("location", folder, "a file or folder that exists")
            found = sorted(_below(folder, ()), key=lambda blob: blob.location)
        if not found:
            raise NotFound("folder", prefix, "a folder with at least one file")
        return found

    def names(self, prefix: str) -> set[str]:
        """The names of the files right in a folder; none where there is no folder."""
        with explained(prefix):
            try:
                with os.scandir(_folder(prefix) or ".") as entries:
                    return {entry.name for entry in entries if not is_unfinished(entry.name) and _is_file(entry)}
            except FileNotFoundError:
                return set()

    def open(self, location: str) -> BinaryIO:
        """The file, buffered and seekable; raises InvalidInput where there is none."""
        with explained(location):
            return Path(location).open("rb", buffering=_BUFFER_BYTES)

    def read(self, location: str) -> bytes | None:
        """A small file; None where there is none."""
        with explained(location):
            try:
                return Path(location).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, location: str, data: bytes) -> None:
        """Put a small file there, or replace it: a reader sees the old or the new one, whole."""
        path = Path(location)
        with explained(location):
            with _written_beside(path, data) as written:
                written.replace(path)
            sync_directory(path.parent)

    def create(self, location: str, data: bytes) -> bool:
        """Put a small file there if there is none; whether it did."""
        path = Path(location)
        with explained(location):
            if os.path.lexists(path):
                sync_directory(path.parent)  # who put it there may not have come so far
                return False
            with _written_beside(path, data) as written:
                return link_if_absent(written, path)

    def staging(self, location: str) -> Path:
        """The local folder in which a file is written that will be published at that location."""
        folder = Path(location).parent / _STAGING  # beside it: a hard link does not reach another filesystem
        with explained(location):
            make_folder(folder)
        return folder

    def publish(self, staged: Path, location: str) -> bool:
        """Put a staged file there, whole, if there is none; whether it did. The staged file is then gone."""
        path = Path(location)
        with explained(location):
            sync_file(staged)
            make_folder(path.parent)
            won = link_if_absent(staged, path)
            staged.unlink(missing_ok=True)
        return won

    def write_large(self, location: str, chunks: Callable[[], Iterator[bytes]], size_bytes: int) -> None:
        """Put a file of any size there, or replace it, whole; nothing where the chunks raise."""
        self._write_chunks(Path(location), chunks(), lambda: location)

    def write_unnamed(self, folder: str, chunks: Iterator[bytes], location: Callable[[], str | None]) -> bool:
        """Put a file of any size below a folder, where `location` says after its last chunk; None: nowhere."""
        self._write_chunks(Path(folder, "unnamed"), chunks, location)
        return True

    def _write_chunks(self, beside: Path, chunks: Iterator[bytes], location: Callable[[], str | None]) -> None:
        with explained(str(beside)), unfinished(beside) as (written, file):
            for chunk in chunks:
                write_all(file, chunk)
            if (found := location()) is None:
                return
            os.fsync(file.fileno())
            path = Path(found)
            make_folder(path.parent)
            written.replace(path)
            sync_directory(path.parent)

    def delete(self, location: str) -> None:
        """Remove the file, if there is one."""
        path = Path(location)
        with explained(location):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return
            sync_directory(path.parent)

    def sweep(self, prefix: str) -> int:
        """Remove what writers that were killed have left below a folder; how many files."""
        with explained(prefix):
            return swept(prefix)


def _blob(location: str, found: os.stat_result) -> Blob:
    written = f"mtime {found.st_mtime_ns} ns"
    return Blob(location, found.st_size, f"{found.st_size} bytes, {written}", written, found.st_mtime)


def _folder(prefix: str) -> str:
    """As `os.path.join` wants it, so that what is found is named as the user named the folder."""
    return prefix.rstrip("/") or prefix[:1]


def _below(folder: str, above: tuple[tuple[int, int], ...]) -> Iterator[Blob]:
    """The files in a folder and its folders; links are followed, but not to a folder that they are in."""
    itself = Path(folder).stat()
    here = (itself.st_dev, itself.st_ino)
    if here in above:
        return
    with os.scandir(folder or ".") as entries:
        children = [entry for entry in entries if not is_unfinished(entry.name)]
    for entry in children:
        location = os.path.join(folder, entry.name)  # noqa: PTH118 - Path would drop a leading ./
        found = _stat(entry)
        if found is None:
            continue
        if modes.S_ISDIR(found.st_mode):
            yield from _below(location, (*above, here))
        elif modes.S_ISREG(found.st_mode):
            yield _blob(location, found)


def _is_file(entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return entry.is_file()  # without asking for more than the listing has
    found = _stat(entry)
    return found is not None and modes.S_ISREG(found.st_mode)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What a name or its link leads to; None for a link that leads nowhere, or in a circle."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in _NOWHERE:
            return None
        raise


@contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    with unfinished(path) as (written, file):
        write_all(file, data)
        os.fsync(file.fileno())
        yield written
