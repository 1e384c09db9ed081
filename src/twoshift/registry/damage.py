"""Files of a registry that are not what was pushed: found by whoever reads them, written anew by the next push."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from twoshift.errors import Broken, TwoshiftError
from twoshift.ports import Blobs
from twoshift.registry.layout import Layout
from twoshift.registry.records import Version, VersionFile
from twoshift.registry.transfer import Bytes, damage_of, received

__all__ = ["Damage"]

_AT_ONCE = 4  # files that are read at the same time


class Damage:
    """Marks of damaged files, by their content; who may only read leaves none."""

    def __init__(self, layout: Layout, blobs: Blobs) -> None:
        self._layout, self._blobs = layout, blobs

    def marked(self) -> set[str]:
        """The files that somebody has found damaged."""
        return self._blobs.names(self._layout.damages)

    def mark(self, sha256: str) -> None:
        """The next push of this content does not rely on what lies there."""
        with suppress(TwoshiftError):
            self._blobs.create(self._layout.damage(sha256), b"{}")

    def clear(self, sha256: str) -> None:
        """It is what was pushed again."""
        self._blobs.delete(self._layout.damage(sha256))

    def of(self, version: Version, progress: Callable[[float], None]) -> dict[str, str]:
        """The files of a version that are not what was pushed, with what is wrong."""
        seen, marked = Bytes(version.size_bytes, progress), self.marked()

        def read(file: VersionFile) -> str:
            what = damage_of(self._blobs, self._layout.blob(file.sha256), file, seen)
            if what:
                self.mark(file.sha256)
            elif file.sha256 in marked:
                with suppress(TwoshiftError):
                    self.clear(file.sha256)
            return what

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = threads.map(read, version.files)
            return {file.path: what for file, what in zip(version.files, found, strict=True) if what}

    def receive(self, file: VersionFile, target: Path, seen: Bytes) -> None:
        """Write a file of the registry to this machine; raises Broken where it is not what was pushed."""
        try:
            received(self._blobs, self._layout.blob(file.sha256), file, target, seen)
        except Broken:
            self.mark(file.sha256)
            raise
