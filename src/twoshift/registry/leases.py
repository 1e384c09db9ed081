"""Who is at work in a registry: a stamp that its owner renews, by the clock of where the registry lies."""

from __future__ import annotations

import os
import time
import uuid
from threading import Event
from types import TracebackType

import msgspec

from twoshift.closable_thread import ClosableThread
from twoshift.decodable import decodable
from twoshift.errors import TwoshiftError
from twoshift.known_process import has_ended, place_here
from twoshift.ports import Blobs

__all__ = ["LEASE_S", "Lease"]

LEASE_S = 30.0  # who has not renewed a stamp for so long is gone
_RENEW_S = 5.0
_LATE_S = 20.0  # who comes to renew it only now may have been taken for gone


@decodable
class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lease."""

    machine: str = ""  # where process numbers mean the same; empty where nobody can tell
    process: int = 0
    renewals: int = 0


class Lease:
    """A stamp in a folder of the registry, there for as long as its owner works."""

    def __init__(self, blobs: Blobs, folder: str) -> None:
        self._blobs, self._folder = blobs, folder
        self._location = f"{folder}/{uuid.uuid4().hex}.json"
        self._renewed_s, self._renewals = time.monotonic(), 0
        self._was_late = False
        self._thread = ClosableThread(self._renew, "twoshift-lease")

    def __enter__(self) -> Lease:
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()
        self._blobs.delete(self._location)

    @property
    def was_late(self) -> bool:
        """Whether somebody may have taken its owner for gone: the process was held, or nobody answered."""
        self._was_late |= time.monotonic() - self._renewed_s > _LATE_S
        return self._was_late

    def has_company(self, folder: str) -> bool:
        """Whether somebody else works there; stamps of those who are gone are removed."""
        return sum(self._is_held(f"{folder}/{each}") for each in self._blobs.names(folder)) > 0

    def _is_held(self, location: str) -> bool:
        found = self._blobs.stat(location)
        if location == self._location or found is None:
            return False
        if not self._is_gone(location) and self._now_s() - found.written_s <= LEASE_S:
            return True
        self._blobs.delete(location)
        return False

    def _now_s(self) -> float:
        """By the clock of where the registry lies: this lease was renewed a moment ago."""
        if (own := self._blobs.stat(self._location)) is None:  # taken for gone
            self._was_late = True
            self._write()
            own = self._blobs.stat(self._location)
        return 0.0 if own is None else own.written_s

    def _is_gone(self, location: str) -> bool:
        """Whether its process has ended on this machine."""
        try:
            stamp = msgspec.json.decode(self._blobs.read(location) or b"", type=_Stamp)
        except msgspec.DecodeError:
            return False
        return has_ended(stamp.machine, stamp.process)

    def _renew(self, closed: Event) -> None:
        while not closed.wait(_RENEW_S):
            _ = self.was_late
            try:
                self._write()
            except TwoshiftError:  # it is tried again, and is late then
                continue

    def _write(self) -> None:
        began_s = time.monotonic()
        stamp = _Stamp(machine=place_here(), process=os.getpid(), renewals=self._renewals)
        self._blobs.write(self._location, msgspec.json.encode(stamp))
        self._renewed_s, self._renewals = began_s, self._renewals + 1
