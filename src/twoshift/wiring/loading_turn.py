"""Models of one machine load side by side, and each is measured alone."""

from __future__ import annotations

import contextlib
import fcntl
import time
from types import TracebackType
from typing import TextIO

from twoshift.config import home
from twoshift.runtime.load_limit import when_given_up

__all__ = ["LoadingTurn"]

_LOOK_S = 0.02
_LONGEST_S = 60.0  # that it waits for the others: one of them may hang
_NO_TURN = (OSError, ValueError)  # the file cannot be locked, or is closed: nobody waits for this model any longer


class LoadingTurn:
    """While a model loads. Another one that loads on the same cores would make its calls look slow.

    A file under TWOSHIFT_HOME is locked, because replicas load in processes of their own.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def __enter__(self) -> LoadingTurn:
        folder = home()
        with contextlib.suppress(*_NO_TURN):  # a home that cannot be written: no profile is stored there, either
            folder.mkdir(parents=True, exist_ok=True)
            self._file = opened = (folder / "loading").open("a")
            when_given_up(self._leave)
            self._lock(opened, fcntl.LOCK_SH)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def alone(self) -> None:
        """Wait until no other model loads; none begins to until this one's turn has ended."""
        if self._file is not None:
            with contextlib.suppress(*_NO_TURN):
                self._lock(self._file, fcntl.LOCK_EX)

    def _lock(self, file: TextIO, kind: int) -> None:
        until_s = time.monotonic() + _LONGEST_S
        while time.monotonic() < until_s:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                return
            time.sleep(_LOOK_S)
