"""Deleting files that no version has, and never one that a push relies on.

A push says so before it looks which files are there, and who cleans says so before it looks for pushes: of two at the
same time at least one sees the other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from twoshift.errors import NotFound, TryLater
from twoshift.ports import Blobs
from twoshift.registry.layout import Layout

__all__ = ["Cleaning"]

_LOOK_S, _PATIENCE_S = 0.1, 10.0
_ABANDONED_PUSH_S = 24 * 3600.0  # by a process that was killed
_ABANDONED_CLEANING_S = 600.0
_STAMP_S, _LATE_S = 20.0, 60.0  # who cleans says so again, or ends where it came to say it too late


class Cleaning:
    """Who pushes and who cleans, written down in the registry itself."""

    def __init__(self, layout: Layout, blobs: Blobs) -> None:
        self._layout, self._blobs = layout, blobs

    @contextmanager
    def kept_off(self) -> Iterator[None]:
        """No file is deleted in here; raises TryLater where somebody deletes some for too long."""
        location = f"{self._layout.pushes}/{uuid.uuid4().hex}.json"
        self._blobs.write(location, _stamped())
        try:
            self._wait_for_cleaner()
            yield
        finally:
            self._blobs.delete(location)

    def clean(self, referenced: Callable[[], set[str]]) -> int:
        """Delete what is not referenced; the bytes. None where a push is under way: the next cleaning does it then."""
        if not self._blobs.create(self._layout.cleaning, _stamped()):
            return 0
        try:
            if any(self._is_recent(f"{self._layout.pushes}/{each}") for each in self._blobs.names(self._layout.pushes)):
                return 0
            return self._deleted(referenced())
        finally:
            self._blobs.delete(self._layout.cleaning)

    def _deleted(self, kept: set[str]) -> int:
        try:
            found = self._blobs.list(self._layout.blobs)
        except NotFound:
            return 0
        freed, stamped_s = 0, time.monotonic()
        for blob in found:
            age_s = time.monotonic() - stamped_s
            if age_s > _LATE_S:  # the process was held: a push may believe by now that nobody cleans
                return freed
            if age_s > _STAMP_S:
                self._blobs.write(self._layout.cleaning, _stamped())
                stamped_s = time.monotonic()
            if blob.location.rpartition("/")[2] not in kept:
                self._blobs.delete(blob.location)
                freed += blob.size_bytes
        return freed

    def _is_recent(self, location: str) -> bool:
        age_s = self._age_s(location)
        if age_s is None:
            return False
        if age_s > _ABANDONED_PUSH_S:
            self._blobs.delete(location)
            return False
        return True

    def _wait_for_cleaner(self) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while (age_s := self._age_s(self._layout.cleaning)) is not None:
            if age_s > _ABANDONED_CLEANING_S:
                self._blobs.delete(self._layout.cleaning)
                return
            if time.monotonic() > until_s:
                raise TryLater(f"files of removed versions are being deleted in {self._layout.root}", _PATIENCE_S)
            time.sleep(_LOOK_S)

    def _age_s(self, location: str) -> float | None:
        """Since it was written; None where it is not there."""
        data = self._blobs.read(location)
        if data is None:
            return None
        try:
            return time.time() - float(msgspec.json.decode(data)["unix_s"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            return 0.0


def _stamped() -> bytes:
    return msgspec.json.encode({"unix_s": time.time()})
