"""A version's files in a folder of the user's: all of them, or no folder."""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from pathlib import Path

from twoshift.durable import sync_directory
from twoshift.errors import InvalidInput

__all__ = ["copied"]

_UNFINISHED = "twoshift-tmp"


def copied(source: Path, folder: Path) -> None:
    """Copy to a folder that is empty or not there; raises InvalidInput where that cannot be."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        host = socket.gethostname().replace(".", "-")
        begun = folder.parent / f".{folder.name}.{host}.{os.getpid()}.{uuid.uuid4().hex}.{_UNFINISHED}"
        try:
            shutil.copytree(source, begun, copy_function=shutil.copyfile)
            begun.rename(folder)
        finally:
            shutil.rmtree(begun, ignore_errors=True)
        sync_directory(folder.parent)
    except OSError as error:
        accepted = f"an empty or new folder that the current user may write to ({error.strerror or error})"
        raise InvalidInput("output", str(folder), accepted) from error


def _sweep(folder: Path) -> None:
    """What processes of this machine that were killed have left."""
    host = socket.gethostname().replace(".", "-")
    for begun in folder.parent.glob(f".{folder.name}.{host}.*.{_UNFINISHED}"):
        owner = begun.name.removeprefix(f".{folder.name}.{host}.").partition(".")[0]
        if owner.isdigit() and Path("/proc/self").exists() and not Path("/proc", owner).exists():
            shutil.rmtree(begun, ignore_errors=True)
