"""A part's file as it is written: every byte is counted and hashed on its way to the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

__all__ = ["PartFile", "Seal", "seal_of"]

_CHUNK_BYTES = 1 << 20


class Seal(NamedTuple):
    """What a part's bytes are known by."""

    size_bytes: int
    sha256: str


class PartFile:
    """A new file, written from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._file, self._hash, self._size = path.open("wb"), hashlib.sha256(), 0

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._file.closed

    def write(self, data: Any) -> int:
        """All of it."""
        self._hash.update(data)
        self._size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        """How much was written."""
        return self._size

    def flush(self) -> None:
        """To the operating system."""
        self._file.flush()

    def close(self) -> None:
        """The end."""
        self._file.close()

    def seal(self) -> Seal:
        """Of all that was written, which is not what a bad disk may have kept of it."""
        return Seal(self._size, self._hash.hexdigest())


def seal_of(file: BinaryIO) -> Seal:
    """Of what a file holds now."""
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return Seal(size, digest.hexdigest())
