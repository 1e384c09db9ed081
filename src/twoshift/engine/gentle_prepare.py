"""Background rows prepared on the cores that live calls run on: a few at a time, with rests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from twoshift.engine.blocks import BlockTaker
from twoshift.ports import Prepared, PreparedElsewhere, RowPreparer, Runtime

__all__ = ["GentlePreparing", "gentle_of", "gentle_preparing"]

_SHARE = 0.1  # of a core, while live rows wait or run: rows take more of the device than that lets them wait
_PIECE_S = 0.002  # of the processor: so long a live call may share its core
_FIRST_ROWS, _MOST_ROWS = 8, 256  # of a piece; a tokenizer takes more of them to threads of its own


class GentlePreparing:
    """Prepares rows in pieces. After each, as long as live rows are there, their calls have the cores to themselves."""

    def __init__(
        self,
        preparer: RowPreparer,
        has_live: Callable[[], bool],
        worked_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._preparer, self._has_live, self._worked_s, self._sleep = preparer, has_live, worked_s, sleep
        self._turn = threading.Lock()  # several threads have one share together, and the first is ready first

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """As the preparer does at once; a bad row is named by its place in its piece."""
        if len(rows) <= _FIRST_ROWS:
            return self._preparer.prepare(rows)
        with self._turn:
            return self._preparer.joined(self._pieces(rows))

    def _pieces(self, rows: Sequence[Any]) -> list[Prepared]:
        pieces, at, count = list[Prepared](), 0, _FIRST_ROWS
        while at < len(rows):
            began_s = self._worked_s()
            pieces.append(self._preparer.prepare(rows[at : at + count]))
            took_s, at = self._worked_s() - began_s, at + count
            count = max(1, min(_MOST_ROWS, 2 * count, int(count * _PIECE_S / max(took_s, 1e-9))))
            if at < len(rows) and self._has_live():
                self._sleep(took_s * (1 / _SHARE - 1))
        return pieces


@runtime_checkable
class _Served(Protocol):
    """An engine that also answers live requests."""

    @property
    def gentle(self) -> GentlePreparing | None: ...


def gentle_preparing(runtime: Runtime, has_live: Callable[[], bool]) -> GentlePreparing | None:
    """Of a runtime beside live rows. None where the device has cores of its own, or pieces cannot be joined: a user's
    code may want all rows.
    """
    if not runtime.info.device.startswith("cpu") or not isinstance(runtime, PreparedElsewhere):
        return None
    return GentlePreparing(runtime.row_preparer, has_live)


def gentle_of(engine: BlockTaker) -> GentlePreparing | None:
    """How background rows of an engine are prepared; None: as its runtime does."""
    return engine.gentle if isinstance(engine, _Served) else None
