"""A file under its name, only if there is none, so that a power cut cannot undo it."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from twoshift.durable import sync_directory
from twoshift.errors import InvalidInput

__all__ = ["link_if_absent", "make_folder", "sync_file"]

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def link_if_absent(written: Path, path: Path) -> bool:
    """Give the file that name if nobody has it, durably; whether it did. Its old name may be gone then."""
    try:
        os.link(written, path)
        won = True
    except FileExistsError:
        won = _is_same(written, path)  # over NFS a link that was made may be asked for twice
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        won = _rename_if_absent(written, path)
    sync_directory(path.parent)  # also where another was first: who put it there may not have come so far
    return won


def make_folder(folder: Path) -> None:
    """The folder with all above it, each durable in the one above."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_directory(folder.parent)


def sync_file(path: Path) -> None:
    """Wait until its bytes are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _is_same(written: Path, path: Path) -> bool:
    try:
        return written.samefile(path)
    except FileNotFoundError:
        return False


def _rename_if_absent(written: Path, path: Path) -> bool:
    """For filesystems without hard links; a plain rename would overwrite what another has published."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(written), _AT_FDCWD, os.fsencode(path), _RENAME_NOREPLACE) == 0:
            return True
        code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    if code in (errno.EINVAL, errno.ENOSYS, *_NO_LINKS):
        accepted = "a writable folder on a filesystem that supports hard links (FAT and some network drives do not)"
        raise InvalidInput("output", str(path.parent), accepted)
    raise OSError(code, os.strerror(code), str(path))
