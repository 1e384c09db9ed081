"""What is pushed: files on this machine, under the names that they will have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from twoshift.errors import Broken, InvalidInput
from twoshift.registry.records import VersionFile, is_inside

__all__ = ["Artifact", "ArtifactFile", "HashedBeside", "HashedChunks", "chunks_of", "files_below", "hashed"]

CHUNK_BYTES = 1 << 20  # that a core has in its cache while it is read, hashed and written
_LEFT_OUT = ("__pycache__", "lost+found")

Progress = Callable[[int], None]  # so many bytes more


class HashedBeside:
    """SHA-256 of chunks, in a thread of its own: the next chunk is read, sent or written meanwhile."""

    def __init__(self) -> None:
        self._digest, self._thread = hashlib.sha256(), ThreadPoolExecutor(1, "twoshift-hash")
        self._last: Future[None] | None = None

    def __enter__(self) -> HashedBeside:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def update(self, chunk: bytes) -> None:
        """One more, once the one before is done: not many are held."""
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(self._digest.update, chunk)

    def hexdigest(self) -> str:
        """Of all."""
        if self._last is not None:
            self._last.result()
        return self._digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file that becomes one of a version."""

    path: str  # below the version's folder
    source: Path


@dataclass(frozen=True, slots=True)
class Artifact:
    """A model as it is pushed."""

    entry: str  # what is loaded: "." for the folder, model.onnx, model.py:Class
    files: tuple[ArtifactFile, ...]
    source: str
    parent: str | None = None
    needs_trust: bool = False
    is_llm: bool = False
    runtime: str = ""
    outputs: tuple[str, ...] = ()
    model_checksum: str = ""

    def __post_init__(self) -> None:
        paths = [file.path for file in self.files]
        if not paths:
            raise InvalidInput("SOURCE", self.source, "a model folder with at least one file")
        for path in paths:
            if not is_inside(path):
                accepted = f"files whose names contain no '..' and no backslash; one file is called {path!r}"
                raise InvalidInput("SOURCE", self.source, accepted)
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise InvalidInput("SOURCE", self.source, f"files with different names; two files are called {twice}")

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.source.stat().st_size for file in self.files)


def files_below(folder: Path, below: str = "", inside: frozenset[Path] = frozenset()) -> Iterator[ArtifactFile]:
    """Every file of a folder, links followed; hidden ones and Python's caches are left out.

    Raises InvalidInput for a link to nothing, and for one to a folder that it is `inside` of.
    """
    inside |= {folder.resolve()}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        name = f"{below}{path.name}"
        if path.is_dir():
            if path.resolve() in inside:
                raise InvalidInput(
                    "SOURCE", str(path), "a folder; this path is a symbolic link to one of its own parent folders"
                )
            yield from files_below(path, f"{name}/", inside)
        elif path.is_symlink() and not path.exists():
            raise InvalidInput("SOURCE", str(path), f"a link to a file that exists, not to {path.readlink()}")
        elif path.is_file():
            yield ArtifactFile(name, path)


class HashedChunks:
    """A file's bytes, read once; what they were is known after the last of them."""

    def __init__(self, file: ArtifactFile, progress: Progress) -> None:
        self._file, self._progress = file, progress
        self.found: VersionFile | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Raises InvalidInput where it cannot be read, Broken where it changes meanwhile."""
        size, before = 0, _stamp(self._file.source)
        with HashedBeside() as digest:
            for chunk in _read(self._file.source):
                digest.update(chunk)
                size += len(chunk)
                self._progress(len(chunk))
                yield chunk
            if _stamp(self._file.source) != before:
                raise Broken(f"{self._file.source} was changed while it was pushed; push the model again")
            self.found = VersionFile(self._file.path, size, digest.hexdigest())


def hashed(file: ArtifactFile, progress: Progress) -> VersionFile:
    """The file with its checksum; raises InvalidInput where it cannot be read."""
    digest, size = hashlib.sha256(), 0
    for chunk in _read(file.source):
        digest.update(chunk)
        size += len(chunk)
        progress(len(chunk))
    return VersionFile(file.path, size, digest.hexdigest())


def chunks_of(source: Path, expected: VersionFile, progress: Progress) -> Iterator[bytes]:
    """The file's bytes; raises Broken at the end where they are others than those that were hashed."""
    chunks = HashedChunks(ArtifactFile(expected.path, source), progress)
    yield from chunks
    if chunks.found != expected:
        raise Broken(f"{source} was changed while it was pushed; push the model again")


def _stamp(source: Path) -> tuple[int, int] | None:
    try:
        found = source.stat()
    except OSError:  # who reads it says why
        return None
    return found.st_size, found.st_mtime_ns


def _read(source: Path) -> Iterator[bytes]:
    try:
        with source.open("rb", buffering=0) as opened:
            while chunk := opened.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise InvalidInput("SOURCE", str(source), f"a file that can be read ({error.strerror})") from error
