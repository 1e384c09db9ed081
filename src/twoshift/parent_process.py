"""Child processes: they end with the process that started them, and `ps` and `top` show what each is."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["end_with", "how_ended", "name_process"]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def end_with(parent: int) -> None:
    """End this process once the thread of the parent that has started it is gone.

    A parent that is killed is also noticed by its closed lines; but not by code that never gives up the interpreter.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def how_ended(code: int | None) -> str:
    """What an exit code says, after the name of the process."""
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


def name_process(name: str) -> None:
    """What `ps -o comm`, `top` and `pstree` show of this process; the system keeps 15 bytes of it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
