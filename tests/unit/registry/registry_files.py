"""Small models to push, and blobs that die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from twoshift.blobs.local import LocalBlobs
from twoshift.registry.artifact import Artifact, files_below
from twoshift.registry.store import Registry


def artifact(folder: Path, **files: str) -> Artifact:
    """Files of these names, with `_` for a dot, and of this content."""
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Artifact(".", tuple(files_below(folder)), str(folder))


def contents(registry: Registry, name: str, number: int) -> dict[str, str]:
    """What a reader of a version gets."""
    found = registry.version(name, number)
    assert registry.damaged(found) == {}
    return {file.path: (registry.blobs.read(registry.layout.blob(file.sha256)) or b"").decode() for file in found.files}


class Killed(BaseException):
    """Not caught by anything, as a kill is not."""


class DyingBlobs(LocalBlobs):
    """The process is killed at its n-th change: before it, or right after it. Nothing is changed from then on."""

    def __init__(self, changes: int, after: bool) -> None:
        super().__init__()
        self.left, self.after = changes, after

    def _change(self, done: Callable[[], object]) -> object:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Killed
        result = done()
        if self.left == 0:
            raise Killed
        return result

    def write(self, location: str, data: bytes) -> None:
        self._change(lambda: LocalBlobs.write(self, location, data))

    def create(self, location: str, data: bytes) -> bool:
        return bool(self._change(lambda: LocalBlobs.create(self, location, data)))

    def write_large(self, location: str, chunks: Callable[[], Iterator[bytes]], size_bytes: int) -> None:
        self._change(lambda: LocalBlobs.write_large(self, location, chunks, size_bytes))

    def write_unnamed(self, folder: str, chunks: Iterator[bytes], location: Callable[[], str | None]) -> bool:
        return bool(self._change(lambda: LocalBlobs.write_unnamed(self, folder, chunks, location)))

    def delete(self, location: str) -> None:
        self._change(lambda: LocalBlobs.delete(self, location))
