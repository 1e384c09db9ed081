"""Files that hold a model: is it one, what is its checksum, and the package that reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from twoshift.errors import InvalidInput

__all__ = ["checksum_of_bytes", "checksum_of_files", "full_file"]

_CHUNK_BYTES = 1 << 20


def full_file(path: Path) -> Path:
    """The path of a regular file with something in it; raises InvalidInput."""
    if not path.is_file():
        raise InvalidInput("model", str(path), "a regular file that exists")
    if path.stat().st_size == 0:
        raise InvalidInput("model", str(path), "a model file that is not empty")
    return path


def checksum_of_bytes(data: bytes | bytearray) -> str:
    """`sha256:<hex>` of what was read."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def checksum_of_files(paths: Iterable[Path]) -> str:
    """`sha256:<hex>` of one file; of several, of their names and checksums in order of name."""
    files = sorted(set(paths), key=lambda path: path.name)
    if len(files) == 1:
        return f"sha256:{_digest(files[0])}"
    lines = "".join(f"{_digest(path)}  {path.name}\n" for path in files)
    return checksum_of_bytes(lines.encode())


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
