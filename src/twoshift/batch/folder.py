"""A job's output folder: one run at a time works in it, and leaves nothing half done there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from twoshift.errors import InvalidInput

__all__ = ["FolderTaken", "is_below", "one_coordinator", "own_folder", "remove_leftovers", "shared_folder"]

_LEAVING_S, _AGAIN_S = 5.0, 0.05  # while the last of others removes what they have left


class FolderTaken(InvalidInput):
    """Another run works in the output folder."""


@contextlib.contextmanager
def one_coordinator(output: str) -> Iterator[None]:
    """Holds a lock on a local folder; elsewhere two would do the same work twice, and neither would harm the other."""
    if "://" in output:
        yield
        return
    with _lock_file(output) as file:
        _locked(file, fcntl.LOCK_EX, output)
        yield


@contextlib.contextmanager
def own_folder(output: str) -> Iterator[None]:
    """The same, and nothing half done is left there."""
    with one_coordinator(output):
        remove_leftovers(output)
        try:
            yield
        finally:
            remove_leftovers(output)


@contextlib.contextmanager
def shared_folder(output: str) -> Iterator[None]:
    """For runs of pieces: several at once, and no other run; the last one to go leaves nothing half done."""
    if "://" in output:
        yield
        return
    with _lock_file(output) as file:
        _locked(file, fcntl.LOCK_SH, output, _LEAVING_S)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # others are at work
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_leftovers(output)


def _lock_file(output: str) -> IO[str]:
    folder = Path(output) / "_twoshift"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / "lock").open("a+")
    except OSError as error:
        raise InvalidInput("output", output, f"a folder that Twoshift can write to ({error.strerror})") from error


def _locked(file: IO[str], kind: int, output: str, wait_s: float = 0.0) -> None:
    """Raises FolderTaken where another run has it for so long."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            break
        except OSError as error:
            if time.monotonic() >= until_s:
                file.seek(0)
                accepted = f"an output folder that no other run is using; process {file.read()} is using this folder"
                raise FolderTaken("output", output, accepted) from error
        time.sleep(_AGAIN_S)
    with contextlib.suppress(OSError):  # a full disk: it is locked all the same
        file.truncate(0)
        os.write(file.fileno(), str(os.getpid()).encode())


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
