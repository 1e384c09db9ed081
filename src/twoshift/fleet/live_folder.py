"""Where the fronts of one machine find a replica: a folder of its user's own."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

__all__ = ["LiveFolder"]

_LONGEST = 100  # bytes of a socket's path: the system's own limit is little more
_PREFIX = "twoshift-"


class LiveFolder:
    """Nobody but the user may look into it; whoever has made it removes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.live_path, self.board_path = str(path / "live"), str(path / "board")

    @staticmethod
    def make() -> LiveFolder:
        """In the system's folder for what is temporary, or in one with a shorter name; raises OSError."""
        made = LiveFolder(Path(tempfile.mkdtemp(prefix=_PREFIX)))
        if len(made.live_path.encode()) <= _LONGEST:
            return made
        made.remove()
        return LiveFolder(Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp")))

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

    def remove(self) -> None:
        """With all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
