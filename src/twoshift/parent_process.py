"""Child processes: they end with the process that started them, and `ps` and `top` show what each is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker

__all__ = ["SIGNALS", "begin_child", "end_with", "how_ended", "name_process", "signals_blocked"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # whether a child ends is for its parent to say
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@contextlib.contextmanager
def signals_blocked(signals: Sequence[signal.Signals] = SIGNALS) -> Iterator[None]:
    """A child that is started inside has them blocked from its first moment: Ctrl-C goes to every process."""
    resource_tracker.ensure_running()  # its own start would unblock them again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_child(parent: int, name: str) -> None:
    """Of a child whose signals were blocked: it ignores them, ends with its parent and is shown under that name."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    end_with(parent)
    name_process(name)


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
