"""A job's output folder: one run at a time works in it, and leaves nothing half done there."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from twoshift.errors import InvalidInput

__all__ = ["FolderTaken", "is_below", "one_coordinator", "remove_leftovers"]


class FolderTaken(InvalidInput):
    """Another run works in the output folder."""


@contextlib.contextmanager
def one_coordinator(output: str) -> Iterator[None]:
    """Holds a lock on a local folder; elsewhere two would do the same work twice, and neither would harm the other."""
    if "://" in output:
        yield
        return
    folder = Path(output) / "_twoshift"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+")
    except OSError as error:
        raise InvalidInput("output", output, f"a folder that can be written ({error.strerror})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            accepted = f"an output folder that no other run is using; process {file.read()} is using this one"
            raise FolderTaken("output", output, accepted) from error
        with contextlib.suppress(OSError):  # a full disk: it is locked all the same
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def remove_leftovers(output: str) -> None:
    """What writers that were killed had begun in a local folder, which is ours alone now; none of it is published."""
    if "://" in output:
        return
    folder = Path(output)
    begun = [*folder.glob("_twoshift/staging/part-*"), *folder.glob(".*.twoshift-tmp")]
    for path in (*begun, *folder.glob("_*/**/.*.twoshift-tmp")):
        with contextlib.suppress(OSError):  # it does no harm where it is
            path.unlink()


def is_below(location: str, folder: str) -> bool:
    """Whether a file lies somewhere in that folder."""
    if "://" in folder:
        return location.startswith(f"{folder.rstrip('/')}/")
    return "://" not in location and Path(location).resolve().is_relative_to(Path(folder).resolve())
