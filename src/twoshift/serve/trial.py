"""A candidate that may end this process is tried with a note on the disk, which the next start reads."""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from twoshift.durable import sync_directory

__all__ = ["Trial"]

_MOST_TRIES = 2  # a server that was killed goes on with its rollout; one that ends again and again does not
_BEGUN = "begun\n"
_exit = os._exit


class Trial:
    """From before the load until the first calls are answered. What ends the process meanwhile is written down.

    Fatal signals and `os._exit` are known by their last words. A kill from outside leaves none: it may have been
    anybody's, so the candidate has a second try, and not a third.
    """

    def __init__(self, folder: Path, rollout_id: str) -> None:
        self._path = folder / rollout_id
        self._file: IO[Any] | None = None
        self._told_before = False  # whether fatal signals were told of to stderr

    def why_not(self) -> str:
        """Why the candidate is not tried again; empty where it may be."""
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        words = [line for line in lines if line and line != _BEGUN.strip()]
        if words:
            return f"the version crashed the server during its test: {words[0]}"
        if len(lines) >= _MOST_TRIES:
            return f"the server was killed or ran out of memory {len(lines)} times while the version was tested"
        return ""

    def begin(self) -> None:
        """Write down that it is tried; a disk that cannot be written does not hold it up."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a")
            file.write(_BEGUN)
            file.flush()
            os.fsync(file.fileno())
            sync_directory(self._path.parent)
            self._file, self._told_before = file, faulthandler.is_enabled()
            faulthandler.enable(file, all_threads=False)
            os._exit = self._exiting

    def end(self) -> None:
        """It has not ended the process; nothing is left."""
        file, self._file = self._file, None
        if file is None:
            return
        if os._exit == self._exiting:
            os._exit = _exit
        faulthandler.disable()
        if self._told_before and sys.__stderr__ is not None:
            faulthandler.enable(sys.__stderr__)
        with suppress(OSError):
            file.close()
            self._path.unlink(missing_ok=True)

    def _exiting(self, status: int) -> NoReturn:
        file, caller = self._file, str(sys._getframe(1).f_globals.get("__name__", ""))
        with suppress(OSError, ValueError):
            if file is not None and caller.partition(".")[0] != "twoshift":  # else this server ends by itself
                file.write(f"os._exit({status}) in {caller}\n")
                file.flush()
                os.fsync(file.fileno())
        _exit(status)
