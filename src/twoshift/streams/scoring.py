"""Windows on their way to parts: two at once, so that the device never waits, and committed one after the other."""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from twoshift.batch.inputs import InputFile, Piece, read
from twoshift.batch.inputs.piece import END
from twoshift.batch.part_stats import PartStats, StreamMark
from twoshift.batch.plan import Plan, plan_location
from twoshift.batch.result_columns import ERROR
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.windows import WINDOW_BYTES, WINDOW_ROWS, Stopped
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import Broken, InvalidInput, TryLater
from twoshift.policy.retries import RetryPolicy
from twoshift.ports import Blobs
from twoshift.retrying import retried
from twoshift.streams.commits import CommittedPart, OutputGone, StreamOutput
from twoshift.streams.dead_letters import DeadLetter, DeadLetters
from twoshift.streams.progress import StreamCounts
from twoshift.streams.source import Position
from twoshift.streams.window import StreamWindow

__all__ = ["AT_ONCE", "Committed", "WindowScorer"]

_log = logging.getLogger(__name__)
AT_ONCE = 2  # the next one is read while the last rows of one are on the device
_AGAIN = RetryPolicy(0.5, 30.0, math.inf)
_TRIES = 3  # of what is neither full nor silent
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Committed:
    """A window that is a part now."""

    window: StreamWindow
    part: CommittedPart
    stats: PartStats
    dead_letters: int
    took_s: float  # beside the window before it


@dataclass(slots=True)
class _Turn:
    """Of a window, to be committed."""

    window: StreamWindow
    is_over: threading.Event = field(default_factory=threading.Event)
    is_committed: bool = False
    over_s: float = 0.0


class _Witness:
    """A PartWitness: collects dead letters, and lets a part be seen when the one before it is."""

    def __init__(self, turn: _Turn, before: _Turn | None, mark: StreamMark, stop: threading.Event) -> None:
        self._window, self._before, self.mark, self._stop = turn.window, before, mark, stop
        self._rows = 0
        self.letters = [DeadLetter.of(where, why) for where, why in turn.window.unreadable.items()]
        self.publish: Callable[[list[DeadLetter]], None] = lambda _: None

    def wrote(self, batch: pa.RecordBatch) -> None:
        """Looks for errors."""
        errors = batch.column(ERROR)
        if errors.null_count < batch.num_rows:
            for place, error in enumerate(errors.to_pylist()):
                if error is not None:
                    where = error.partition(", row ")[0]
                    self.letters.append(DeadLetter.of(where, error, self._window.payload(self._rows + place)))
        self._rows += batch.num_rows

    def before_publish(self) -> None:
        """Raises Stopped where the window before this one is not committed, or it is to be given up."""
        while self._before is not None and not self._before.is_over.wait(0.2):
            if self._stop.is_set():
                raise Stopped
        if self._before is not None and not self._before.is_committed:
            raise Stopped
        self.publish(self.letters)


class WindowScorer:
    """Scores windows of one stream; one thread begins them and asks for those that are committed."""

    def __init__(
        self,
        engine: BlockTaker,
        plan: Plan,
        blobs_for: Callable[[str], Blobs],
        owner: BlockOwner,
        merged: Callable[[list[Position]], Position],
        counts: StreamCounts,
    ) -> None:
        self._engine, self._plan, self._blobs_for, self._owner = engine, plan, blobs_for, owner
        self._merged, self._counts = merged, counts
        self._output = blobs_for(plan.settings.output)
        self._parts = StreamOutput(self._output, plan.settings.output)
        self._letters = DeadLetters(self._output, plan.settings.output)
        self._begun_as = self._plan_identity()
        self._threads = ThreadPoolExecutor(AT_ONCE, "twoshift-window")
        self._begun: deque[tuple[_Turn, Future[Committed]]] = deque()
        self._last: _Turn | None = None
        self._stop = threading.Event()

    @property
    def in_work(self) -> list[StreamWindow]:
        """Windows that are begun and not committed."""
        return [turn.window for turn, _ in self._begun]

    def begin(self, window: StreamWindow) -> None:
        """Score it, and commit it after those that were begun before."""
        turn = _Turn(window)
        self._begun.append((turn, self._threads.submit(self._work, turn, self._last)))
        self._last = turn

    def committed(self, wait_s: float) -> Committed | None:
        """The next window that is; None where none is in that time. Raises what it failed with."""
        if not self._begun:
            return None
        turn, future = self._begun[0]
        if not turn.is_over.wait(wait_s):
            return None
        self._begun.popleft()
        return future.result()

    def close(self, now: bool) -> None:
        """Let what is in work finish, or give it up."""
        if now:
            self._stop.set()
        self._threads.shutdown(wait=True)

    def give_up(self) -> None:
        """What is in work; `committed` raises Stopped for it."""
        self._stop.set()

    def _work(self, turn: _Turn, before: _Turn | None) -> Committed:
        began_s, tries = time.monotonic(), 0

        def may_retry(error: Exception, _: float) -> bool:
            nonlocal tries
            tries += 1
            if isinstance(error, Stopped | Broken | InvalidInput):
                return False
            full = isinstance(error, OSError) and error.errno in _FULL
            kind = "full" if full else "no answer" if isinstance(error, TryLater) else "failed"
            self._counts.problem(kind, str(error))
            _log.warning("window %d failed and is retried (%s): %s", turn.window.number, kind, error)
            return full or isinstance(error, TryLater) or tries < _TRIES

        try:
            done, letters = retried(lambda: self._scored(turn, before), _AGAIN, may_retry, self._stop.wait)
            turn.is_committed, turn.over_s = True, time.monotonic()
            self._counts.solved()
            free_s = began_s if before is None else max(began_s, before.over_s)
            number = turn.window.number
            part = CommittedPart(self._name(number), number, number, 0)
            return Committed(turn.window, part, done, letters, turn.over_s - free_s)
        finally:
            turn.is_over.set()

    def _scored(self, turn: _Turn, before: _Turn | None) -> tuple[PartStats, int]:
        while True:
            try:
                return self._published(turn, before)
            except (Broken, InvalidInput) as error:
                bad = self._unreadable(turn.window)
                if not bad:
                    raise
                _log.warning("%s is skipped: %s", ", ".join(bad), error)
                turn.window.unreadable |= bad

    def _published(self, turn: _Turn, before: _Turn | None) -> tuple[PartStats, int]:
        window = turn.window
        number = window.number
        mark = StreamMark(number, number, self._merged(window.positions))
        witness = _Witness(turn, before, mark, self._stop)
        witness.publish = lambda letters: self._before_part(number, letters)
        inside = window.blobs_for(self._blobs_for)
        scorer = ShardScorer(self._engine, window.plan(self._plan), inside, "stream", self._owner, witness=witness)
        try:
            stats, published = scorer.score(number, self._stop, lambda: None)
        finally:
            scorer.close()
        if not published:
            stats = self._others(number, mark)
        return stats, len(witness.letters)

    def _before_part(self, number: int, letters: list[DeadLetter]) -> None:
        """Raises OutputGone in a folder that is no more ours: nobody can go on from a part without those before it."""
        if self._plan_identity() != self._begun_as:
            output = self._plan.settings.output
            raise OutputGone(
                f"{output} was deleted or replaced while the stream wrote to it. Run the same command again: the "
                "stream continues after the existing parts, or starts from the beginning if there are none"
            )
        if letters:
            self._letters.write(number, letters)

    def _plan_identity(self) -> str | None:
        found = self._output.stat(plan_location(self._plan.settings.output))
        return None if found is None else found.identity

    def _others(self, number: int, mark: StreamMark) -> PartStats:
        """Of a part that was there: ours, of an attempt whose end was not heard of, or another writer's."""
        stats = self._parts.stats(self._parts.part(self._name(number)))
        if stats.stream != mark:
            output = self._plan.settings.output
            raise Broken(
                f"another stream has written {self._name(number)} in {output}: give each stream its own output folder"
            )
        return stats

    def _name(self, number: int) -> str:
        return f"part-{number:06d}.{self._plan.settings.output_format}"

    def _unreadable(self, window: StreamWindow) -> dict[str, str]:
        """Files that cannot be read to their end, and why."""
        files, pieces = window.input()
        inside, columns, bad = window.blobs_for(self._blobs_for), self._plan.settings.read_columns, dict[str, str]()
        kept = pa.schema([self._plan.schema.field(name) for name in self._plan.settings.keep])
        for piece in pieces:
            file = files[piece.file]
            try:
                for _ in read(piece, file, inside(file.location), columns, WINDOW_ROWS, WINDOW_BYTES, kept):
                    pass
            except (Broken, InvalidInput) as error:
                bad[file.location] = str(error)
        return {location: f"{why}; {_left_out(location, files, pieces)}" for location, why in bad.items()}


def _left_out(location: str, files: Sequence[InputFile], pieces: Sequence[Piece]) -> str:
    """What a window does not have of a file that cannot be read."""
    of_file = [piece for piece in pieces if files[piece.file].location == location]
    unit = "byte" if files[of_file[0].file].is_cut_by_bytes else "row"
    start, stop = min(piece.start for piece in of_file), max(piece.stop for piece in of_file)
    return f"the stream skips this file from {unit} {start:,} to {'its end' if stop == END else f'{stop:,}'}"
