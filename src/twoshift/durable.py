"""Writing so that a power cut cannot undo it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_directory"]


def sync_directory(folder: Path) -> None:
    """Make a rename in the folder durable: it is not by itself, even where the file's own bytes are."""
    if os.name != "posix":  # elsewhere a directory cannot be opened, and the rename is in the journal
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
