"""Deleting files that no version has, and never one that a push relies on.

A push says so before it looks which files are there, and who cleans says so before it looks for pushes: of two at the
same time at least one sees the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twoshift.errors import NotFound, TryLater
from twoshift.ports import Blobs
from twoshift.registry.layout import Layout
from twoshift.registry.leases import LEASE_S, Lease

__all__ = ["Cleaning"]

_LOOK_S, _PATIENCE_S = 0.1, LEASE_S + 10.0  # one that was killed does not refuse a push


class Cleaning:
    """Who pushes and who cleans, written down in the registry itself."""

    def __init__(self, layout: Layout, blobs: Blobs) -> None:
        self._layout, self._blobs = layout, blobs

    @contextmanager
    def kept_off(self) -> Iterator[Lease]:
        """No file is deleted in here while the lease is not late; raises TryLater where somebody cleans too long."""
        with Lease(self._blobs, self._layout.pushes) as lease:
            until_s = time.monotonic() + _PATIENCE_S
            while lease.has_company(self._layout.cleaners):
                if time.monotonic() > until_s:
                    raise TryLater(
                        f"another command is deleting the files of removed versions in {self._layout.root}", 10.0
                    )
                time.sleep(_LOOK_S)
            yield lease

    def clean(self, referenced: Callable[[], set[str] | None]) -> int:
        """Delete what is not referenced; the bytes. None while a push is under way, or nobody knows what is."""
        with Lease(self._blobs, self._layout.cleaners) as lease:
            if lease.has_company(self._layout.pushes):
                return 0
            kept = referenced()
            return 0 if kept is None else self._deleted(kept, lease)

    def _deleted(self, kept: set[str], lease: Lease) -> int:
        try:
            found = self._blobs.list(self._layout.blobs)
        except NotFound:
            return 0
        freed = 0
        for blob in found:
            if lease.was_late:  # a push may believe by now that nobody cleans
                return freed
            if blob.location.rpartition("/")[2] not in kept:
                self._blobs.delete(blob.location)
                freed += blob.size_bytes
        return freed
