"""Files between a registry and this machine, compared with their checksums on the way."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from twoshift.durable import write_all
from twoshift.errors import Broken, InvalidInput
from twoshift.ports import Blobs
from twoshift.registry.artifact import CHUNK_BYTES, HashedBeside
from twoshift.registry.records import VersionFile

__all__ = ["Bytes", "damage_of", "received"]


class Bytes:
    """How many of all bytes were seen, by any thread; tells the share."""

    def __init__(self, total: int, progress: Callable[[float], None]) -> None:
        self._total, self._progress = max(1, total), progress
        self._seen, self._lock = 0, threading.Lock()

    def __call__(self, count: int) -> None:
        """So many more."""
        with self._lock:
            self._seen += count
            self._progress(min(1.0, self._seen / self._total))


def received(blobs: Blobs, location: str, file: VersionFile, target: Path, seen: Bytes) -> None:
    """Write a file of the registry to this machine; raises Broken where it is not what was pushed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with blobs.open(location) as source, target.open("xb", buffering=0) as written, HashedBeside() as digest:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            write_all(written, chunk)
            seen(len(chunk))
        os.fsync(written.fileno())
        found = digest.hexdigest()
    if (size, found) != (file.size_bytes, file.sha256):
        raise Broken(
            f"{location} is damaged: the content differs from the pushed file {file.path}; "
            "push the same model again to replace the file"
        )


def damage_of(blobs: Blobs, location: str, file: VersionFile, seen: Bytes) -> str:
    """What is wrong with a file of the registry; empty where it is what was pushed."""
    digest, size = hashlib.sha256(), 0
    try:
        with blobs.open(location) as source:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                seen(len(chunk))
    except InvalidInput:
        return f"{location} is missing"
    except Broken as error:
        return str(error)
    if size != file.size_bytes:
        return f"{location} has {size:,} bytes instead of {file.size_bytes:,}"
    return "" if digest.hexdigest() == file.sha256 else f"{location} has another checksum than the pushed file"
