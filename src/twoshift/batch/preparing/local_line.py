"""A preparing process of this machine, as its worker reaches it: a socket, and memory that both share."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from twoshift.batch.preparing.arena import Arena, Arrays, arena_file, placed_bytes
from twoshift.batch.preparing.messages import FromPreparer, Submitted, ToPreparer
from twoshift.parent_process import how_ended
from twoshift.policy.preparing import PreparersPolicy
from twoshift.ports import Columns
from twoshift.runtime.devices import usable_threads

__all__ = ["LocalLine", "LocalPlaces"]

# As multiprocessing starts its own; but whoever is a daemon of that, as a job's worker is, may have no children of it
_logger = logging.getLogger(__name__)
_PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from twoshift.batch.preparing.process import main; main(*map(int, sys.argv[2:]))"
)
_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false"}  # its siblings have the other cores
_END_S = 5.0  # for a process whose line is closed


class LocalLine:
    """A PreparerLine. The system ends the process with the thread that has made this."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as made:
            file = arena_file()
            made.callback(os.close, file)
            ours, theirs = socket.socketpair()
            self._connection = Connection(ours.detach())
            made.callback(self._connection.close)
            with theirs:  # or its end would never be seen
                self._process = _started(theirs.fileno(), file)
            made.callback(self._ended)
            made.callback(self._connection.close)  # before that: it ends with its line
            self._arena = Arena(file)
            made.callback(self._arena.close)
            self._made = made.pop_all()

    def wait_for_room(self) -> None:
        """There is: the system runs whatever is started."""

    def begin(self, given: bytes) -> None:
        """A Given, pickled."""
        self._connection.send_bytes(given)

    def send(self, message: ToPreparer | None) -> None:
        """None: it shall end."""
        self._connection.send(message)

    def receive(self) -> FromPreparer:
        """What it says next."""
        return self._connection.recv()

    def rows_of(self, block: Submitted) -> Columns:
        """Copies: their place is used again as soon as the block is answered, which a cancelled one is at once."""
        return self._arena.copies(block.arrays)

    def put_results(self, block: Submitted, columns: Columns) -> Arrays:
        """Where the block has room for them; by themselves where it has none."""
        size = placed_bytes(columns)
        if size is None or block.room is None or size > block.room[1]:
            return columns
        return self._arena.put(columns, block.room[0])

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Whatever it does."""
        self._process.kill()

    def ending(self) -> str:
        """By its exit code."""
        return how_ended(self._ended())

    def close(self) -> None:
        """Nothing is left of it."""
        self._made.close()

    def _ended(self) -> int:
        """The exit code of one that has closed its line."""
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@dataclass(frozen=True, slots=True)
class LocalPlaces:
    """Places of this machine: there is always one."""

    asked: int | None = None  # processes, by the user
    started: Callable[[], LocalLine] = LocalLine  # a process that waits for a task

    is_at_once = True

    def policy(self, on_cpu: bool) -> PreparersPolicy:
        """By the cores that the worker may use."""
        return PreparersPolicy.on_machine(usable_threads(), on_cpu, self.asked)

    def start(self) -> LocalLine:
        """A process that has no task yet."""
        return self.started()

    def note(self, told: str) -> None:
        """Of one that could not be started: the machine has no room for it."""
        _logger.warning("%s", told)


def _started(line: int, arena: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), *map(str, (line, arena, os.getpid()))]
    return subprocess.Popen(  # noqa: S603 - a program of our own
        words,
        stdin=subprocess.DEVNULL,
        stdout=2,  # what is printed must not get between the lines of --json
        pass_fds=(line, arena),
        env={**os.environ, **_ENVIRONMENT},
    )
