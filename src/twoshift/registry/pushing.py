"""A push: every file first, then the record that makes them a version."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from twoshift.errors import Broken
from twoshift.pointers import check_format
from twoshift.ports import Blobs
from twoshift.registry.artifact import Artifact, ArtifactFile, HashedChunks, chunks_of, hashed
from twoshift.registry.cleaning import Cleaning
from twoshift.registry.damage import Damage
from twoshift.registry.layout import Layout, number_of
from twoshift.registry.names import checked_model_name
from twoshift.registry.records import FORMAT, Version, VersionFile, content_checksum, read_version
from twoshift.registry.transfer import Bytes

__all__ = ["Push"]

_AT_ONCE = 4  # files that are read or sent at the same time


@dataclass(frozen=True, slots=True)
class Push:
    """An artifact on its way into a registry; nobody sees it before all of its files are there."""

    layout: Layout
    blobs: Blobs
    damage: Damage
    stamp: Callable[[], tuple[str, str]]
    name: str
    artifact: Artifact
    note: str

    def run(self, cleaning: Cleaning, progress: Callable[[float], None]) -> Version:
        """The new version."""
        checked_model_name(self.name)
        blobs, layout = self.blobs, self.layout
        blobs.create(layout.mark, msgspec.json.encode({"format": FORMAT, "id": uuid.uuid4().hex}))
        check_format(blobs.read(layout.mark) or b"", layout.mark, FORMAT)
        sent = Bytes(2 * self.artifact.size_bytes, progress)  # read once to know its name, once to send it; or at once
        with cleaning.kept_off() as lease:
            blobs.sweep(layout.root)
            files, sources = self._hashed(sent)
            self._send(files, sources, sent)
            if lease.was_late:  # files that were there may have been deleted meanwhile
                self._send(files, sources, sent)
            version = self._committed(files)
            if lease.was_late:
                self._send(files, sources, sent)
            return version

    def _hashed(self, sent: Bytes) -> tuple[tuple[VersionFile, ...], Mapping[str, Path]]:
        """The files with their checksums, and where each lies; where the registry allows it they are sent, too."""
        known = self._sizes_before()

        def one(file: ArtifactFile) -> VersionFile:
            is_new = file.source.stat().st_size not in known
            return (self._copied(file, sent) if is_new else None) or hashed(file, sent)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            files = tuple(threads.map(one, self.artifact.files))
        return files, {found.sha256: file.source for file, found in zip(self.artifact.files, files, strict=True)}

    def _sizes_before(self) -> frozenset[int]:
        """Of the version before: a file of such a size is likely the same, and need not be copied."""
        known, _ = self._numbers()
        data = self.blobs.read(self.layout.version(self.name, max(known))) if known else None
        if data is None:
            return frozenset()
        with suppress(Broken):
            return frozenset(file.size_bytes for file in read_version(data, self.name).files)
        return frozenset()

    def _copied(self, file: ArtifactFile, sent: Bytes) -> VersionFile | None:
        """Hash the file while it is copied; None where the registry needs its name first."""
        chunks = HashedChunks(file, lambda count: sent(2 * count))
        marked = self.damage.marked()

        def location() -> str | None:
            found = chunks.found
            assert found is not None  # noqa: S101 - all of them were read
            return None if self._is_there(found, marked) else self.layout.blob(found.sha256)

        return chunks.found if self.blobs.write_unnamed(self.layout.blobs, iter(chunks), location) else None

    def _send(self, files: tuple[VersionFile, ...], sources: Mapping[str, Path], sent: Bytes) -> None:
        blobs, layout, damage = self.blobs, self.layout, self.damage
        marked = damage.marked()

        def send(file: VersionFile) -> None:
            if self._is_there(file, marked):
                sent(file.size_bytes)  # of another version, or copied already
                return
            location = layout.blob(file.sha256)
            blobs.write_large(location, lambda: chunks_of(sources[file.sha256], file, sent), file.size_bytes)
            if file.sha256 in marked:
                damage.clear(file.sha256)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            distinct = {file.sha256: file for file in files}.values()
            for done in [threads.submit(send, file) for file in distinct]:
                done.result()

    def _is_there(self, file: VersionFile, marked: Collection[str]) -> bool:
        """Whether the registry has that content, and nobody has found it damaged."""
        there = self.blobs.stat(self.layout.blob(file.sha256))
        return there is not None and there.size_bytes == file.size_bytes and file.sha256 not in marked

    def _committed(self, files: tuple[VersionFile, ...]) -> Version:
        artifact, name = self.artifact, self.name
        created_at, created_by = self.stamp()
        for _ in itertools.count():
            known, removed = self._numbers()
            number, before = max(known | removed, default=0) + 1, max(known, default=None)
            version = Version(
                format=FORMAT, name=name, version=number, checksum=content_checksum(files), files=files,
                entry=artifact.entry, source=artifact.source, created_at=created_at, created_by=created_by,
                parent=artifact.parent or (f"{name}:{before}" if before else None), note=self.note,
                is_llm=artifact.is_llm, needs_trust=artifact.needs_trust, runtime=artifact.runtime,
                outputs=artifact.outputs, model_checksum=artifact.model_checksum,
            )  # fmt: skip
            if self.blobs.create(self.layout.version(name, number), msgspec.json.encode(version)):
                return version
        raise AssertionError

    def _numbers(self) -> tuple[set[int], set[int]]:
        """The versions, and those that were; the versions first: one that goes is among the removed by then."""
        known, removed = (
            {number for each in self.blobs.names(folder) if (number := number_of(each)) is not None}
            for folder in (self.layout.versions(self.name), self.layout.removals(self.name))
        )
        return known, removed
