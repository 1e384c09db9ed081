"""What the registry writes down, each once and for good."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from twoshift.decodable import decodable
from twoshift.errors import Broken
from twoshift.pointers import check_format

__all__ = [
    "FORMAT",
    "AliasMove",
    "Evaluation",
    "Version",
    "VersionFile",
    "VersionUse",
    "content_checksum",
    "read_version",
]

FORMAT = 1


class VersionFile(msgspec.Struct, frozen=True):
    """A file of a version."""

    path: str  # below the version's folder
    size_bytes: int
    sha256: str


@decodable
class Version(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable version of a model; its file's existence is what makes it one."""

    format: int
    name: str
    version: int
    checksum: str  # of all files with their names
    files: tuple[VersionFile, ...]
    entry: str  # what is loaded: "." for the folder, model.onnx, model.py:Class
    source: str
    created_at: str
    created_by: str
    parent: str | None = None  # NAME:2, from which it was made or which it follows
    note: str = ""
    is_llm: bool = False
    needs_trust: bool = False  # loading it runs code of its own, although no suffix says so
    runtime: str = ""  # as it was loaded at the push; empty where it was not
    outputs: tuple[str, ...] = ()
    model_checksum: str = ""  # as jobs and profiles have it

    @property
    def ref(self) -> str:
        """NAME:3."""
        return f"{self.name}:{self.version}"

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)


@decodable
class AliasMove(msgspec.Struct, frozen=True, kw_only=True):
    """One line in the history of an alias."""

    number: int
    version: int  # 0 where it was deleted
    created_at: str
    created_by: str
    is_rollback: bool = False
    is_deletion: bool = False  # it points to no version from here on
    note: str = ""


@decodable
class VersionUse(msgspec.Struct, frozen=True, kw_only=True):
    """Who uses a version."""

    kind: str  # job or server
    where: str  # a job's output folder; host, process and deployment of a server
    host: str = ""
    process: int = 0
    created_at: str
    created_by: str


@decodable
class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """How a version's answers were judged."""

    kind: str  # against: compared with another version's
    where: str  # a job's output folder, or a server
    against: str = ""  # NAME:3
    figures: dict[str, Any] = {}
    created_at: str
    created_by: str


def content_checksum(files: Iterable[VersionFile]) -> str:
    """`sha256:<hex>` of the files' checksums and names, in order of name."""
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def read_version(data: bytes, where: str) -> Version:
    """A version's record, whole and true to itself; raises Broken."""
    check_format(data, where, FORMAT)
    try:
        found = msgspec.json.decode(data, type=Version)
    except (msgspec.DecodeError, ValueError) as error:
        raise Broken(f"{where} is damaged ({error}); push the model again") from error
    if content_checksum(found.files) != found.checksum or any(not is_inside(file.path) for file in found.files):
        raise Broken(f"{where} is damaged: the checksum does not match the listed files; push the model again")
    return found


def is_inside(path: str) -> bool:
    """Whether a file of that name stays in its folder."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and "\\" not in path and all(part not in ("", ".", "..") for part in parts)
