"""Hidden files that are being written: held by who writes them, and removed once nobody does."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from twoshift.blobs.local_publish import make_folder

try:
    import fcntl
except ImportError:  # no POSIX
    fcntl = None

__all__ = ["is_unfinished", "swept", "unfinished"]

_UNFINISHED = ".twoshift-tmp"  # never listed: a writer that was killed may leave one
_ABANDONED_S = 24 * 3600.0  # where a drive has no locks


def is_unfinished(name: str) -> bool:
    """Whether a file of that name is being written, or was when its writer was killed."""
    return name.endswith(_UNFINISHED)


@contextmanager
def unfinished(path: Path) -> Iterator[tuple[Path, FileIO]]:
    """An empty file beside the path, for the path's content; it is gone at the end unless it was renamed."""
    make_folder(path.parent)
    while True:
        written = path.parent / f".{uuid.uuid4().hex}{_UNFINISHED}"
        with written.open("xb", buffering=0) as file:
            try:
                if _is_held(file):
                    yield written, file
                    return
            finally:
                written.unlink(missing_ok=True)


def swept(folder: str) -> int:
    """Remove what writers that are gone have left below a folder; how many files."""
    gone = 0
    for above, _, names in os.walk(folder):
        for name in names:
            if is_unfinished(name):
                with suppress(OSError):  # finished meanwhile, or not ours to remove
                    gone += _removed(Path(above, name))
    return gone


def _is_held(file: FileIO) -> bool:
    """Hold the file for as long as it is open; whether it is there still: it may be swept before."""
    if fcntl is not None:
        with suppress(OSError):  # a drive without locks
            fcntl.flock(file, fcntl.LOCK_EX)
    return os.name != "posix" or os.fstat(file.fileno()).st_nlink > 0


def _removed(path: Path) -> bool:
    with path.open("rb") as file:
        if not _is_abandoned(file.fileno()):
            return False
        path.unlink()  # while it is held: a writer that waits for it sees it gone
    return True


def _is_abandoned(handle: int) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a drive without locks
            pass
        else:
            return True
    return time.time() - os.fstat(handle).st_mtime > _ABANDONED_S
