"""A replica's process, as its front sees it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from typing import Any, ClassVar

from twoshift.fleet.control import FromChild, Stop, ToChild
from twoshift.fleet.frames import LIVE_BYTES
from twoshift.fleet.live_folder import LiveFolder
from twoshift.fleet.replica_process import ReplicaSpec, replica_main
from twoshift.parent_process import signals_blocked

__all__ = ["Child"]

_LISTENS_S = 1.0


class Child:
    """Started in a thread that outlives it: the system ends it with that thread."""

    same_clock: ClassVar[bool] = True

    def __init__(self, spec: ReplicaSpec, gpu: str | None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share locks and device handles
        self._lock = threading.Lock()  # of what is sent
        with contextlib.ExitStack() as made:  # closed again where it does not come to a process
            live, theirs = socket.socketpair()
            made.callback(live.close)
            made.callback(theirs.close)
            for each in (live, theirs):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LIVE_BYTES)
            self.control, other = context.Pipe()
            made.callback(self.control.close)
            made.callback(other.close)
            self._folder = LiveFolder.make()
            made.callback(self._folder.remove)
            self._begin(context, spec, gpu, theirs, other)
            made.pop_all()
        self.was_killed = False  # by a signal that no code of its own raises: somebody else ended it
        theirs.close()  # or its end would never be seen
        other.close()
        self._live: socket.socket | None = live

    def _begin(self, context: Any, spec: ReplicaSpec, gpu: str | None, theirs: socket.socket, other: Any) -> None:
        given = (theirs, other, spec, gpu, os.getpid(), self._folder)
        self._process: Any = context.Process(target=replica_main, args=given, name=f"twoshift-{spec.name}")
        with signals_blocked():
            self._process.start()
        self.pid: int = self._process.pid

    async def take_live(self) -> socket.socket:
        """The socket for live requests: whoever takes it closes it."""
        live, self._live = self._live, None
        assert live is not None  # noqa: S101 - it is taken once
        return live

    def send(self, message: ToChild) -> None:
        """From any thread; lost where it is gone."""
        with self._lock, contextlib.suppress(OSError):
            self.control.send(message)

    def ask_to_stop(self) -> None:
        """It ends by itself; where it does not even listen, it is made to."""
        if not self._lock.acquire(timeout=_LISTENS_S):
            self.kill()
            return
        try:
            self.control.send(Stop())
        except OSError:
            pass
        finally:
            self._lock.release()

    def heard(self) -> tuple[list[FromChild], bool]:
        """What it has said by now, and whether that was all."""
        said, over = list[FromChild](), not self._process.is_alive()
        try:
            while self.control.poll():
                said.append(self.control.recv())
        except (EOFError, OSError):
            over = True
        return said, over

    def kill(self) -> None:
        """Whatever it does."""
        with contextlib.suppress(OSError, ValueError):
            self._process.kill()

    def bury(self, until_s: float) -> str:
        """Wait for its end until then, and make it; how it ended."""
        self._process.join(max(0.0, until_s - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code = self._process.exitcode
        self._process.close()  # its files, too: whoever watches a replica may outlive many
        self.was_killed = code == -signal.SIGKILL
        self._folder.remove()
        self.control.close()
        if self._live is not None:
            self._live.close()
        return (
            f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exited with code {code}"
        )
