"""Loaded by every interpreter of a run under test: what goes wrong there, told by environment variables.

KILL_AT is `role:who:n`: dies before the n-th time that it touches the folder KILL_FOLDER. The role counts
("coordinator" or "worker"), and who dies is "self" or "all" of the session. Where it is a write of data, half of it is
written. KILL_MARK is a file that is made when it happens, so that it happens once.

BAD_FILE cannot be read by the role BAD_ROLE from byte BAD_START to BAD_STOP, BAD_TIMES in all; each time a file
BAD_MARK-n is made.

LATE_PART is the name of a file whose first publisher stops right before it, its process told in the file LATE_MARK.
What it finds when it goes on, "published", "lost" or "failed", is told in the file LATE_MARK.end.
"""

import builtins
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

_open = io.open


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

    def count(target: Any, before: Callable[[], object] = lambda: None) -> None:
        nonlocal left
        is_handle = isinstance(target, int)
        path = os.readlink(f"/proc/self/fd/{target}") if is_handle else os.path.abspath(os.fspath(target))  # noqa: PTH100, PTH115
        if path.startswith(folder):
            left -= 1
            if left == 0:
                before()
                kill()

    class Written(io.FileIO):
        """Under the buffer: what the system is given, when it is given it."""

        def write(self, data: Any, /) -> int:
            half = memoryview(data).cast("B")[: len(data) // 2]
            count(self.fileno(), lambda: super(Written, self).write(half))
            return super().write(data) or 0

    def wrapped(function, place):
        def call(*args, **more):
            count(args[place])
            return function(*args, **more)

        return call

    def opening(file, mode="r", buffering=-1, *args, **more):
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return _open(file, mode, buffering, *args, **more)
        count(file)
        if "b" not in mode or "+" in mode:
            return _open(file, mode, buffering, *args, **more)
        raw = Written(file, mode)
        return raw if buffering == 0 else io.BufferedWriter(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)

    for name, place in (("link", 1), ("fsync", 0), ("replace", 1), ("unlink", 0), ("mkdir", 0), ("write", 0)):
        setattr(os, name, wrapped(getattr(os, name), place))
    io.open = builtins.open = opening


def fail_reads(path: str, start: int, stop: int, times: int, mark: str) -> None:
    def is_due() -> bool:
        """Whether it is to fail once more, counted over all processes."""
        for number in range(times):
            try:
                os.close(os.open(f"{mark}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return False

    class Bad(io.FileIO):
        """As a disk with a bad block: it gives what is before it, and then an error."""

        def readinto(self, buffer: Any, /) -> int:
            view, at = memoryview(buffer).cast("B"), self.tell()
            if start <= at < stop and is_due():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().readinto(view[: start - at] if at < start else view) or 0

    def opening(file, mode="r", buffering=-1, *args, **more):
        if mode == "rb" and not isinstance(file, int) and os.path.abspath(os.fspath(file)) == path:  # noqa: PTH100
            return io.BufferedReader(Bad(file), buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        return _open(file, mode, buffering, *args, **more)

    io.open = builtins.open = opening


def stop_before(part: str, mark: str) -> None:
    link = os.link

    def is_first() -> bool:
        try:
            handle = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        os.write(handle, b"%d\n" % os.getpid())
        os.close(handle)
        return True

    def linking(source: Any, target: Any, **more: Any) -> None:
        if os.path.basename(target) != part or not is_first():  # noqa: PTH119
            link(source, target, **more)
            return
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.5)  # another thread may be the first to stop
        end = "failed"
        try:
            link(source, target, **more)
            end = "published"
        except FileExistsError:
            end = "lost"
            raise
        finally:
            with _open(f"{mark}.end", "w") as file:
                file.write(end)

    os.link = linking


_mine = "worker" if "--multiprocessing-fork" in sys.orig_argv else "coordinator"
if "KILL_AT" in os.environ:
    _role, _who, _at = os.environ["KILL_AT"].split(":")
    if _role == _mine:
        install(_who, int(_at), os.environ["KILL_MARK"], os.environ["KILL_FOLDER"])
if os.environ.get("BAD_ROLE") == _mine:
    _start, _stop, _times = (int(os.environ[name]) for name in ("BAD_START", "BAD_STOP", "BAD_TIMES"))
    fail_reads(os.environ["BAD_FILE"], _start, _stop, _times, os.environ["BAD_MARK"])
if "LATE_PART" in os.environ:
    stop_before(os.environ["LATE_PART"], os.environ["LATE_MARK"])
