"""A preparing process, as its worker sees it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import assert_never

from twoshift.batch.messages import Failed, Scored, WasRead
from twoshift.batch.preparing.arena import Arena, arena_file, placed_bytes
from twoshift.batch.preparing.messages import Answered, Cancelled, FromPreparer, Submitted, ToPreparer, Wrote
from twoshift.batch.preparing.process import SIGNALS
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.results import BlockFuture
from twoshift.engine.waiting import BlockOwner
from twoshift.error_codec import encode_error
from twoshift.errors import TryLater
from twoshift.ports import RowPreparer

__all__ = ["ChildTask", "Heard", "PreparingChild"]

# As multiprocessing starts its own; but whoever is a daemon of that, as a job's worker is, may have no children of it
_PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from twoshift.batch.preparing.process import main; main(*map(int, sys.argv[2:]))"
)
_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false"}  # its siblings have the other cores
_END_S = 5.0  # for a process whose line is closed
_CANCELLED = encode_error(TryLater("the block was cancelled", 1.0))
Heard = Submitted | Wrote | WasRead | Scored | Failed


@dataclass(frozen=True, slots=True)
class _Landed:
    """A block that has its results, or will never have them."""

    submitted: Submitted
    future: BlockFuture


class _Over:
    """Nothing more is to be told."""


@dataclass(frozen=True, slots=True)
class ChildTask:
    """What a process is for."""

    given: bytes  # a Given, pickled
    preparer: RowPreparer
    engine: BlockTaker
    owner: BlockOwner
    hear: Callable[[PreparingChild, Heard], None]
    ended: Callable[[PreparingChild, str], None]  # how


class PreparingChild:
    """Two threads serve it: one hears what it says, one tells it the rest.

    It is started at once, because that takes a while, and waits for its task. The task's functions are called in the
    first thread, which has also started it: the system ends it with that thread.
    """

    def __init__(self) -> None:
        self._tasks = queue.SimpleQueue[ChildTask | None]()  # one
        self._blocks = dict[int, BlockFuture]()  # with the engine
        self._to_tell = queue.SimpleQueue[ToPreparer | _Landed | _Over | None]()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._live, name="twoshift-preparer", daemon=True)
        self._thread.start()

    def begin(self, task: ChildTask | None) -> None:
        """Its task; None: there is none for it, and it ends."""
        self._tasks.put(task)

    def tell(self, message: ToPreparer | None) -> None:
        """A message; None: it shall end, once it has given up what it has in work."""
        self._to_tell.put(message)

    def kill(self) -> None:
        """Whatever it does."""
        if self._process is not None:
            self._process.kill()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in it from its first moment: Ctrl-C goes to every process
        try:
            with _started() as (self._process, line, arena):
                if (task := self._tasks.get()) is None:
                    self._process.kill()
                    return
                how = self._served(task, self._process, line, arena)
        except OSError as error:
            if (task := self._tasks.get()) is None:
                return
            how = f"could not be started: {error}"
        for future in list(self._blocks.values()):
            future.cancel()
        task.ended(self, how)

    def _served(self, task: ChildTask, process: subprocess.Popen[bytes], line: Connection, arena: Arena) -> str:
        """To its end; how that came."""
        given = (task.given, line, arena)
        telling = threading.Thread(target=self._tell_all, args=given, name="twoshift-prepared", daemon=True)
        telling.start()
        try:
            while True:
                self._take(task, line.recv(), arena)
        except (EOFError, OSError):  # it is gone
            code = _ended(process)
            return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        finally:
            self._to_tell.put(_Over())
            telling.join()

    def _take(self, task: ChildTask, message: FromPreparer, arena: Arena) -> None:
        match message:
            case Submitted():
                self._submit(task, message, arena)
                task.hear(self, message)
            case Cancelled(number):
                if (future := self._blocks.get(number)) is not None:
                    future.cancel()
            case Wrote() | WasRead() | Scored() | Failed():
                task.hear(self, message)
            case _:
                assert_never(message)

    def _submit(self, task: ChildTask, block: Submitted, arena: Arena) -> None:
        try:
            rows = task.preparer.rows_of(arena.copies(block.arrays))
            future = task.engine.submit_block(rows, owner=task.owner)
        except Exception as error:
            self._to_tell.put(Answered(block.number, encode_error(error), is_refusal=True))
            return
        self._blocks[block.number] = future
        # Copied and sent by the other thread: this may be called in the engine's, which has a device to feed
        future.add_done_callback(lambda _: self._to_tell.put(_Landed(block, future)))

    def _tell_all(self, given: bytes, line: Connection, arena: Arena) -> None:
        with contextlib.suppress(OSError):  # it is gone
            line.send_bytes(given)
            while not isinstance(message := self._to_tell.get(), _Over):
                line.send(self._answer(message, arena) if isinstance(message, _Landed) else message)

    def _answer(self, landed: _Landed, arena: Arena) -> Answered:
        block, future = landed.submitted, landed.future
        self._blocks.pop(block.number, None)
        if future.cancelled():
            return Answered(block.number, _CANCELLED)
        if (failed := future.exception()) is not None:
            return Answered(block.number, encode_error(failed))
        result = future.result()
        known = {id(error): encode_error(error) for error in result.errors.values()}
        errors = {row: known[id(error)] for row, error in result.errors.items()}
        size = placed_bytes(result.columns)
        fits = size is not None and block.room is not None and size <= block.room[1]
        columns = arena.put(result.columns, block.room[0]) if fits and block.room else result.columns
        return Answered(block.number, None, False, columns, errors, result.device_s)


@contextlib.contextmanager
def _started() -> Iterator[tuple[subprocess.Popen[bytes], Connection, Arena]]:
    """A process, a line to it, and the memory that it shares with us."""
    with contextlib.ExitStack() as made:
        file = arena_file()
        made.callback(os.close, file)
        ours, theirs = socket.socketpair()
        line = Connection(ours.detach())
        made.callback(line.close)
        with theirs:  # or its end would never be seen
            files = (theirs.fileno(), file)
            words = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), *map(str, (*files, os.getpid()))]
            process = subprocess.Popen(  # noqa: S603 - a program of our own
                words,
                stdin=subprocess.DEVNULL,
                stdout=2,  # what is printed must not get between the lines of --json
                pass_fds=files,
                env={**os.environ, **_ENVIRONMENT},
            )
        made.callback(_ended, process)
        made.callback(line.close)  # before that: it ends with its line
        arena = Arena(file)
        made.callback(arena.close)
        yield process, line, arena


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of one that has closed its line."""
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
