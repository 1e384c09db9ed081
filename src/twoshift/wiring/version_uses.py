"""Which registered versions a server serves, written down where they lie."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

from twoshift.errors import TwoshiftError
from twoshift.ports import RuntimeInfo
from twoshift.registry.names import parse_ref
from twoshift.wiring.registered_models import registry_at

__all__ = ["VersionUses"]


class VersionUses:
    """Uses of this process, by deployment and version. A registry that does not answer is not waited for."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], tuple[str, str]] = {}  # -> registry, location
        self._lock = threading.Lock()

    def begin(self, deployment: str, info: RuntimeInfo) -> None:
        """A version is served from now on."""
        ref = parse_ref(info.model)
        if not info.registry or ref is None or ref.version is None:
            return
        where = f"{socket.gethostname()}:{os.getpid()} {deployment}"
        with self._lock, suppress(TwoshiftError):
            location = registry_at(info.registry).used_by(ref, "server", where)
            self._written[deployment, info.model] = (info.registry, location)

    def end(self, deployment: str, info: RuntimeInfo) -> None:
        """It is not any longer."""
        with self._lock, suppress(TwoshiftError):
            if (written := self._written.pop((deployment, info.model), None)) is not None:
                registry_at(written[0]).blobs.delete(written[1])

    def close(self) -> None:
        """Nothing is."""
        with self._lock:
            while self._written:
                _, (registry, location) = self._written.popitem()
                with suppress(TwoshiftError):
                    registry_at(registry).blobs.delete(location)
