"""Calls that failed, and rows that no call may hold: who is guilty, and what becomes of the others."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from twoshift.engine.flight import deliver
from twoshift.engine.waiting import BlockJob, BlockPiece, LiveRow, TriedPiece, Waiting
from twoshift.errors import Broken, DeviceLost, Late, NoRoom, OutOfMemory
from twoshift.policy.lanes import LanePolicy
from twoshift.ports import Columns
from twoshift.types import CallSize, Item

__all__ = ["Recovery"]

RunApart = Callable[[Sequence[LiveRow]], tuple[Columns | Exception, float]]


class Recovery:
    """In the threads of an engine, whose lock guards what it shares with it."""

    def __init__(
        self,
        changed: threading.Condition,
        over: Callable[[], Exception | None],
        policy: LanePolicy,
        waiting: Waiting,
        run_apart: RunApart,
        clock: Callable[[], float],
    ) -> None:
        """`over` says why nothing more is run; `run_apart` makes a call that the policy did not plan."""
        self._changed, self._over, self._policy, self._waiting = changed, over, policy, waiting
        self._run_apart, self._clock = run_apart, clock

    def recover(self, rows: list[LiveRow], pieces: list[BlockPiece], error: Exception) -> None:
        """Find who is guilty and serve the others; a row that failed on its own is. A lost device ends it all."""
        if isinstance(error, DeviceLost):
            raise error
        if isinstance(error, Broken):  # no row is guilty: smaller calls would only hide it
            self._fail_all(rows, [piece.job for piece in pieces], error)
            return
        if not rows and len(pieces) == 1 and len(pieces[0]) == 1:
            pieces[0].fail(error)
            return
        self._requeue(pieces, error)
        if len(rows) == 1 and not pieces:
            rows[0].future.settle(error)
        else:
            self._isolate(rows)

    def _requeue(self, pieces: list[BlockPiece], error: Exception) -> None:
        """Background rows of a failed call go back, to run apart from everybody else.

        Where the memory ran out nobody is guilty: the cap is lower now, and they go back as they were.
        """
        alone = not isinstance(error, OutOfMemory)
        halve = alone and len(pieces) == 1 and len(pieces[0]) > 1
        with self._changed:
            over = self._over()
            for piece in pieces if over is None else ():
                if piece.job.future.done():
                    continue
                middle = (piece.start + piece.stop) // 2 if halve else piece.stop
                for start, stop in ((piece.start, middle), (middle, piece.stop)):
                    if start < stop:
                        self._waiting.add_piece(BlockPiece(piece.job, start, stop), self._clock(), alone)
            self._changed.notify_all()
        if over is not None:  # nobody would run them
            for piece in pieces:
                piece.job.future.settle(over)

    def _isolate(self, rows: Sequence[LiveRow]) -> None:
        """Live rows of a failed call are run again in halves, at once: they have deadlines."""
        half = (len(rows) + 1) // 2
        for group in (rows[:half], rows[half:]):
            if not group:
                continue
            result, elapsed_s = self._run_apart(group)
            if not isinstance(result, Exception):
                deliver(group, [], result, elapsed_s)
            elif isinstance(result, DeviceLost):
                raise result
            elif len(group) == 1 or isinstance(result, Broken):
                self._fail_all(group, [], result)
            else:
                self._isolate(group)

    def _fail_all(self, rows: Sequence[LiveRow], jobs: Sequence[BlockJob], error: Exception) -> None:
        with self._changed:
            for job in jobs:
                self._waiting.forget_block(job)
        for waiting in (*rows, *jobs):
            waiting.future.settle(error)

    def refuse(self, rows: list[LiveRow], pieces: list[BlockPiece]) -> None:
        for row in rows:
            row.future.settle(Late("the request could no longer meet its deadline", begun=False))
        for piece in pieces:
            if not self._try_live(piece):
                piece.fail(self._no_room(int(piece.job.rows.lengths[piece.start])))

    def _try_live(self, piece: BlockPiece) -> bool:
        """Ask a batch row that only a prediction keeps off the device as a live one, behind all others; whether it was.

        Its call says what such rows take: without live requests nothing else would.
        """
        rows, tokens = piece.job.rows, int(piece.job.rows.lengths[piece.start])
        with self._changed:
            now_s = self._clock()
            if self._over() is not None or self._policy.curves.surely_outlasts(CallSize.uniform(1, tokens), now_s):
                return False
            item = Item(self._waiting.new_key(), math.inf, tokens, self._waiting.signatures.number(rows.signature))
            sink = TriedPiece(piece, self._changed)
            self._waiting.add_rows([item], [LiveRow(rows, piece.start, sink, now_s, math.inf, tokens)], now_s)
            self._changed.notify_all()  # another thread may run the live rows
        return True

    def _no_room(self, tokens: int) -> NoRoom:
        """Of a background row that no call may hold: the row is good, and the objective is in its way."""
        limits = self._policy.limits
        if tokens > limits.max_tokens:
            return NoRoom(f"a row has {tokens:,} tokens, but a call may have at most {limits.max_tokens:,} tokens")
        takes, leaves = 1e3 * self._policy.curves.ever_s(CallSize.uniform(1, tokens)), 1e3 * limits.budget_s
        slo = "" if limits.slo_s is None else f"with an SLO of {1e3 * limits.slo_s:g} ms, "
        change = "start the server with a larger --slo-ms or --call-budget-ms, or run the job without --on"
        return NoRoom(
            f"{slo}a call with batch rows may take {leaves:.3g} ms, but one row takes {takes:.3g} ms: {change}"
        )
