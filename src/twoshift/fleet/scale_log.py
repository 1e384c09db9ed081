"""The decision log: JSON lines that `twoshift sim day --replay` decides again."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from twoshift.errors import InvalidInput

__all__ = ["ScaleLog"]

_logger = logging.getLogger("twoshift.scale")
_MOST_BYTES = 64 << 20  # then the log is put aside, and another is begun


class ScaleLog:
    """Of one process and one thread. Two files at most: what is put aside replaces what was put aside before."""

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        """Raises InvalidInput where it cannot be written, or where another server writes it."""
        self.path, self._most_bytes = path, most_bytes
        self._file: FileIO | None = None
        self._whole = False  # whether everything since its header is in it
        self._failing = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = path.with_name(f"{path.name}.lock").open("w")
        except OSError as error:
            raise InvalidInput("scale_log", str(path), f"a writable file ({error.strerror})") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InvalidInput(
                "scale_log",
                str(path),
                "a file that no other server writes to (--scale-log); another server writes to this file",
            ) from None

    @property
    def needs_header(self) -> bool:
        """Whether the next line must be a header: it is new, full, or could not be written."""
        return not self._whole or self._file is None or self._file.tell() >= self._most_bytes

    def begin(self, header: dict[str, Any]) -> None:
        """A part of its own; where the file is full, in a new one."""
        try:
            if self._file is not None and self._file.tell() >= self._most_bytes:
                self._file.close()
                self._file = None
                os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))  # noqa: PTH105
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
            _cut_to_a_line(self.path)
        except OSError as error:
            self._failed(error)
            return
        self._whole = True
        self.add(header)

    def add(self, entry: dict[str, Any]) -> None:
        """A line; where it cannot be written, the log says so and goes on with a header when it can."""
        if self._file is None or not self._whole:
            return
        line = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
        except OSError as error:
            self._failed(error)
        else:
            self._failing = False

    def close(self) -> None:
        """Another server may write it now."""
        if self._file is not None:
            self._file.close()
        self._lock.close()

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            _logger.warning("scaling decisions are not logged: %s: %s", self.path, error.strerror or error)
        self._whole, self._failing = False, True

    @staticmethod
    def now() -> str:
        """For people who read it."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")


def _cut_to_a_line(path: Path) -> None:
    """Take away the half line that a killed server, or a full disk, has left."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (1 << 16)))
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
