"""What is known of a version: profiles and evaluations, each written once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from twoshift.errors import NotFound
from twoshift.ports import Blobs
from twoshift.registry.layout import Layout
from twoshift.registry.names import ModelRef
from twoshift.registry.records import Evaluation, Version

__all__ = ["Evaluations", "VersionProfiles"]


class VersionProfiles:
    """What was measured of versions, by device: the first profile of one stays."""

    def __init__(self, layout: Layout, blobs: Blobs) -> None:
        self._layout, self._blobs = layout, blobs

    def names(self, version: Version) -> list[str]:
        """The profiles of a version, by the names of their devices."""
        folder = self._layout.profiles(version.name, version.version)
        return sorted(each.removesuffix(".json") for each in self._blobs.names(folder))

    def get(self, ref: ModelRef, key: str) -> bytes | None:
        """What was measured of a version on a device; None where nothing was."""
        return self._blobs.read(self._location(ref, key))

    def keep(self, ref: ModelRef, key: str, data: bytes) -> bool:
        """For other machines of the same kind. Whether it is this one that is kept."""
        return _is_there(self._layout, self._blobs, ref) and self._blobs.create(self._location(ref, key), data)

    def _location(self, ref: ModelRef, key: str) -> str:
        return f"{self._layout.profiles(ref.name, ref.version or 0)}/{key}.json"


class Evaluations:
    """How versions' answers were judged, by whom and when."""

    def __init__(self, layout: Layout, blobs: Blobs, stamp: Callable[[], tuple[str, str]]) -> None:
        self._layout, self._blobs, self._stamp = layout, blobs, stamp

    def of(self, version: Version | ModelRef) -> list[Evaluation]:
        """Those of a version, oldest first; one that cannot be read is left out."""
        folder, found = self._layout.evaluations(version.name, version.version or 0), list[Evaluation]()
        for each in self._blobs.names(folder):
            data = self._blobs.read(f"{folder}/{each}")
            with suppress(msgspec.DecodeError):
                found += [] if data is None else [msgspec.json.decode(data, type=Evaluation)]
        return sorted(found, key=lambda each: (each.created_at, each.where))

    def keep(self, ref: ModelRef, kind: str, where: str, against: str, figures: Mapping[str, Any]) -> bool:
        """Write one down; whether it was: not where the same was before. Raises NotFound without the version."""
        if not _is_there(self._layout, self._blobs, ref):
            raise NotFound("model", str(ref), "a version that is in the registry")
        created_at, created_by = self._stamp()
        made = Evaluation(
            kind=kind, where=where, against=against, figures=dict(figures), created_at=created_at, created_by=created_by
        )
        told = msgspec.json.encode([kind, where, against, figures], order="sorted").decode()
        named = uuid.uuid5(uuid.NAMESPACE_URL, told).hex  # a job that is ended again has the same
        folder = self._layout.evaluations(ref.name, ref.version or 0)
        return self._blobs.create(f"{folder}/{kind}-{named}.json", msgspec.json.encode(made))


def _is_there(layout: Layout, blobs: Blobs, ref: ModelRef) -> bool:
    return ref.version is not None and blobs.read(layout.version(ref.name, ref.version)) is not None
