"""Loaded by every interpreter of a run under test: kills it before the n-th time that it touches the output folder.

KILL_AT is `role:who:n`: the role counts ("coordinator" or "worker"), and who dies is "self" or "all" of the session.
KILL_MARK is a file that is made when it happens, so that it happens once.
"""

import builtins
import io
import os
import signal
import sys
from typing import Any


def install(who: str, at: int, mark: str, folder: str) -> None:
    left = at

    def kill() -> None:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if who == "all":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def count(target: Any) -> None:
        nonlocal left
        is_handle = isinstance(target, int)
        path = os.readlink(f"/proc/self/fd/{target}") if is_handle else os.path.abspath(os.fspath(target))  # noqa: PTH100, PTH115
        if path.startswith(folder):
            left -= 1
            if left == 0:
                kill()

    def wrapped(function, place):
        def call(*args, **more):
            count(args[place])
            return function(*args, **more)

        return call

    opened = io.open

    def opening(file, mode="r", *args, **more):
        if not isinstance(file, int) and set(mode) & set("wax+"):
            count(file)
        return opened(file, mode, *args, **more)

    for name, place in (("link", 1), ("fsync", 0), ("replace", 1), ("unlink", 0), ("mkdir", 0)):
        setattr(os, name, wrapped(getattr(os, name), place))
    io.open = builtins.open = opening


if "KILL_AT" in os.environ:
    _role, _who, _at = os.environ["KILL_AT"].split(":")
    if ("worker" if "--multiprocessing-fork" in sys.orig_argv else "coordinator") == _role:
        install(_who, int(_at), os.environ["KILL_MARK"], os.environ["KILL_FOLDER"])
