"""The preparing processes of a worker before its first shard: how many, by its job's first rows, and started early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from twoshift.batch.preparing.child import PreparingChild
from twoshift.engine.prepare import prepared_parts
from twoshift.policy.preparing import HOST_S_PER_ROW, PreparersPolicy
from twoshift.ports import RowPreparer

__all__ = ["Preparers"]

_READ_AND_WRITTEN_S = 30e-6  # a row, besides its preparation: of Parquet, with 384 numbers as its answer
_FEW_ROWS = 8  # prepared at a time: by this thread alone, whose time is taken
_MOST_ROWS = 128


class Preparers:
    """Whoever takes one has to end it."""

    def __init__(self, policy: PreparersPolicy) -> None:
        self.policy = policy
        self.host_s_per_row = HOST_S_PER_ROW  # until it is measured
        self._warm = list[PreparingChild]()  # and nothing to do yet

    def warm(self, preparer: RowPreparer, rows: Sequence[Any], device_s_per_row: float) -> None:
        """Start as many as these rows say; they are ready when the plan is."""
        self.host_s_per_row = _host_s(preparer, rows[:_MOST_ROWS]) or self.host_s_per_row
        missing = self.policy.wanted(device_s_per_row, self.host_s_per_row) - len(self._warm)
        self._warm += [PreparingChild() for _ in range(missing)]

    def take(self) -> PreparingChild:
        """One without a task."""
        return self._warm.pop() if self._warm else PreparingChild()

    def close(self) -> None:
        """End those that nobody has taken."""
        for child in self._warm:
            child.begin(None)
        for child in self._warm:
            child.join()
        self._warm.clear()


def _host_s(preparer: RowPreparer, rows: Sequence[Any]) -> float | None:
    """Of the processor, for a row; None where no row can be prepared."""
    done, began_s = 0, time.thread_time()
    for at in range(0, len(rows), _FEW_ROWS):
        done += sum(len(part.lengths) for part in _good_parts(preparer, rows[at : at + _FEW_ROWS]))
    return (time.thread_time() - began_s) / done + _READ_AND_WRITTEN_S if done else None


def _good_parts(preparer: RowPreparer, rows: Sequence[Any]) -> list[Any]:
    return [part for _, part in prepared_parts(preparer, rows) if not isinstance(part, Exception)]
