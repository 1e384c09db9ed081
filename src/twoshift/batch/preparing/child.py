"""A preparing process, as its worker sees it, wherever it runs."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from twoshift.batch.messages import Failed, Scored, WasRead
from twoshift.batch.preparing.line import PreparerLine, Unfit
from twoshift.batch.preparing.messages import Answered, Cancelled, FromPreparer, Submitted, ToPreparer, Wrote
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.results import BlockFuture
from twoshift.engine.waiting import BlockOwner
from twoshift.error_codec import encode_error
from twoshift.errors import TryLater
from twoshift.parent_process import SIGNALS
from twoshift.ports import RowPreparer

__all__ = ["ChildTask", "Heard", "PreparingChild"]

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
    first thread, which has also started it: the system ends a process of this machine with that thread.
    """

    def __init__(self, start: Callable[[], PreparerLine]) -> None:
        self.started_s = time.monotonic()
        self.is_up = False  # it runs
        self.unfit = ""  # why it can do nothing
        self._start = start
        self._tasks = queue.SimpleQueue[ChildTask | None]()  # one
        self._blocks = dict[int, BlockFuture]()  # with the engine
        self._to_tell = queue.SimpleQueue[ToPreparer | _Landed | _Over | None]()
        self._line: PreparerLine | None = None
        self._is_killed = False
        self._thread = threading.Thread(target=self._live, name="twoshift-preparer", daemon=True)
        self._thread.start()

    def begin(self, task: ChildTask | None) -> None:
        """Its task; None: there is none for it, and it ends."""
        self._tasks.put(task)

    def tell(self, message: ToPreparer | None) -> None:
        """A message; None: it shall end, once it has given up what it has in work."""
        self._to_tell.put(message)

    def kill(self) -> None:
        """Whatever it does, and where it waits for room, too."""
        self._is_killed = True  # first: whoever starts it right now looks at this after that
        if self._line is not None:
            self._line.kill()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in it from its first moment: Ctrl-C goes to every process
        try:
            with contextlib.closing(self._start()) as line:
                self._line = line
                if self._is_killed:
                    line.kill()
                line.wait_for_room()
                self.is_up = True
                if (task := self._tasks.get()) is None:
                    line.kill()
                    return
                how = self._served(task, line)
        except (Unfit, OSError) as error:
            how = self.unfit = str(error) if isinstance(error, Unfit) else f"could not be started: {error}"
            if (task := self._tasks.get()) is None:
                return
        for future in list(self._blocks.values()):
            future.cancel()
        task.ended(self, how)

    def _served(self, task: ChildTask, line: PreparerLine) -> str:
        """To its end; how that came."""
        try:
            line.begin(task.given)
        except Unfit as error:
            self.unfit = str(error)
            return self.unfit
        except (EOFError, OSError):
            return line.ending()
        telling = threading.Thread(target=self._tell_all, args=(line,), name="twoshift-prepared", daemon=True)
        telling.start()
        try:
            while True:
                self._take(task, line.receive(), line)
        except (EOFError, OSError):  # it is gone
            return line.ending()
        finally:
            self._to_tell.put(_Over())
            telling.join()

    def _take(self, task: ChildTask, message: FromPreparer, line: PreparerLine) -> None:
        match message:
            case Submitted():
                self._submit(task, message, line)
                task.hear(self, message)
            case Cancelled(number):
                if (future := self._blocks.get(number)) is not None:
                    future.cancel()
            case Wrote() | WasRead() | Scored() | Failed():
                task.hear(self, message)
            case _:
                assert_never(message)

    def _submit(self, task: ChildTask, block: Submitted, line: PreparerLine) -> None:
        try:
            rows = task.preparer.rows_of(line.rows_of(block))
            future = task.engine.submit_block(rows, owner=task.owner)
        except Exception as error:
            self._to_tell.put(Answered(block.number, encode_error(error), is_refusal=True))
            return
        self._blocks[block.number] = future
        # Copied and sent by the other thread: this may be called in the engine's, which has a device to feed
        future.add_done_callback(lambda _: self._to_tell.put(_Landed(block, future)))

    def _tell_all(self, line: PreparerLine) -> None:
        with contextlib.suppress(OSError):  # it is gone
            while not isinstance(message := self._to_tell.get(), _Over):
                line.send(self._answer(message, line) if isinstance(message, _Landed) else message)

    def _answer(self, landed: _Landed, line: PreparerLine) -> Answered:
        block, future = landed.submitted, landed.future
        self._blocks.pop(block.number, None)
        if future.cancelled():
            return Answered(block.number, _CANCELLED)
        if (failed := future.exception()) is not None:
            return Answered(block.number, encode_error(failed))
        result = future.result()
        known = {id(error): encode_error(error) for error in result.errors.values()}
        errors = {row: known[id(error)] for row, error in result.errors.items()}
        return Answered(
            block.number, None, False, line.put_results(block, result.columns), errors, result.device_s
        )  # fmt: skip
