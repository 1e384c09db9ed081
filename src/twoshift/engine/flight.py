"""A call between its launch and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twoshift.engine.results import RowResult
from twoshift.engine.waiting import BlockPiece, LiveRow
from twoshift.errors import Broken, DeviceLost
from twoshift.policy.lane_values import Call
from twoshift.ports import Columns, Launched

__all__ = ["Flight", "as_broken", "as_exception", "deliver", "waited"]


_NOT_YET = DeviceLost("the call was never launched on the device")


@dataclass(slots=True)
class Flight:
    """A call in its slot."""

    call: Call
    rows: list[LiveRow]
    pieces: list[BlockPiece]
    began_s: float  # when it had the device: its launch, or the end of the call before it in the slot
    launched: Launched | Exception = _NOT_YET
    is_watched: bool = False  # what it takes of the processor is measured
    formed_s: float = 0.0  # of the processor, until its launch
    began_cpu_s: float = 0.0  # its thread's processor time at its launch

    def abandon(self, error: Broken) -> None:
        """Nobody may wait for ever."""
        for row in self.rows:
            row.future.settle(error)
        for piece in self.pieces:
            piece.job.future.settle(error)


def waited(launched: Launched | Exception) -> Columns | Exception:
    """The results, or what went wrong at the launch or since."""
    if isinstance(launched, Exception):
        return launched
    try:
        return launched.wait()
    except BaseException as error:
        return as_exception(error)


def as_exception(error: BaseException) -> Exception:
    """What a call has raised; in the engine's thread even a KeyboardInterrupt is the model's own."""
    return error if isinstance(error, Exception) else RuntimeError(f"the model raised {error!r}")


def as_broken(error: BaseException) -> Broken:
    """The error as one that ends the engine."""
    return error if isinstance(error, Broken) else Broken(f"the engine stopped: {error!r}")


def deliver(rows: Sequence[LiveRow], pieces: list[BlockPiece], columns: Columns, elapsed_s: float) -> None:
    """What a call has brought, to whoever waits for it."""
    total = len(rows) + sum(map(len, pieces))
    for at, row in enumerate(rows):
        row.future.settle(RowResult(columns, at, elapsed_s, total))
    at = len(rows)
    for piece in pieces:
        piece.job.filling.put(piece.start, piece.stop, columns, at)
        at += len(piece)
        piece.job.settle_if_full()
