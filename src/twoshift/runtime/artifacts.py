"""Files that hold a model: is it one, what is its checksum, and the package that reads it."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twoshift.errors import InvalidInput

__all__ = ["checksum_of_bytes", "checksum_of_files", "full_file", "needed"]

_CHUNK_BYTES = 1 << 20


def full_file(path: Path) -> Path:
    """The path of a regular file with something in it; raises InvalidInput."""
    if not path.is_file():
        raise InvalidInput("model", str(path), "a regular file that exists")
    if path.stat().st_size == 0:
        raise InvalidInput("model", str(path), "a file with a model in it: it is empty")
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


def needed(module: str, extra: str, what: str) -> Any:
    """An optional package's module; raises InvalidInput that says which extra to install for `what`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise InvalidInput(
            "model", what, f"the package {package}, which is not installed: pip install 'twoshift[{extra}]'"
        ) from error


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
