"""Writing so that a power cut cannot undo it."""

from __future__ import annotations

import os
from io import RawIOBase
from pathlib import Path

__all__ = ["sync_directory", "write_all"]


def sync_directory(folder: Path) -> None:
    """Make a rename in the folder durable: it is not by itself, even where the file's own bytes are."""
    if os.name != "posix":  # elsewhere a directory cannot be opened, and the rename is in the journal
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(file: RawIOBase, data: bytes | memoryview) -> None:
    """Write to a file without a buffer, which takes less than all where a disk is almost full."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) or 0 :]
