"""Where processes of one server find each other: a folder of its user's own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["LiveFolder"]

_LONGEST = 100  # bytes of a socket's path: the system's own limit is little more
_PREFIX, _LOCK = "twoshift-live-", "lock"
_NEW_S = 60.0  # after its making, until when a folder may have no lock yet


class LiveFolder:
    """Nobody but the user may look into it. Whoever has made it removes it, or the next one where it was killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.live_path, self.board_path = str(path / "live"), str(path / "board")
        self._lock: int | None = None  # of who has made it

    def __reduce__(self) -> Any:
        return LiveFolder, (self.path,)

    @staticmethod
    def make(root: Path | None = None) -> LiveFolder:
        """In the system's folder for what is temporary, or in one with a shorter name; raises OSError."""
        root = root or Path(tempfile.gettempdir())
        if len(str(root / _PREFIX).encode()) + len("xxxxxxxx/live") > _LONGEST:
            root = Path("/tmp")  # noqa: S108 - what is made in it is private
        _sweep(root)
        made = LiveFolder(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root)))
        _made.add(made)
        made._lock = os.open(made.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(made._lock, fcntl.LOCK_EX)  # the system gives it back, however this process ends
        return made

    def listen(self) -> socket.socket:
        """Where more fronts connect; raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(self.live_path)
            listening.listen()
        except OSError:
            listening.close()
            raise
        return listening

    @staticmethod
    def remove_all() -> None:
        """All that this process has made: for one that ends without closing what uses them."""
        for each in [*_made]:
            each.remove()

    def remove(self) -> None:
        """With all that is in it."""
        _made.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


_made = set[LiveFolder]()  # by this process, and not removed yet


def _sweep(root: Path) -> None:
    """Those whose makers were killed."""
    for path in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or gone by now
            if time.time() - path.stat().st_mtime > _NEW_S:
                _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    """Raises OSError where its maker lives."""
    lock = os.open(path / _LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(lock)
