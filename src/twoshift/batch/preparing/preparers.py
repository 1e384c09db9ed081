"""The preparing processes of a worker before its first shard: how many, by its job's first rows, and started early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from twoshift.batch.plan import Plan
from twoshift.batch.preparing.child import PreparingChild
from twoshift.batch.settings import JobSettings
from twoshift.engine.prepare import prepared_parts
from twoshift.policy.preparing import HOST_S_PER_ROW, PreparersPolicy
from twoshift.ports import RowPreparer
from twoshift.runtime.devices import usable_threads, visible_gpus

__all__ = ["Preparers"]

_READ_AND_WRITTEN_S = 10e-6  # a row, besides its preparation: of Parquet, with 384 numbers as its answer
_FEW_ROWS = 8  # prepared at a time: by this thread alone, whose time is taken
_FEWEST_ROWS, _MOST_ROWS = 64, 128  # of a sample
_SHORT_ROWS = 16_384  # of a job: a second of work
_WARM = 4  # started before it is known how many shards there are


class Preparers:
    """Whoever takes one has to end it."""

    def __init__(self, policy: PreparersPolicy) -> None:
        self.policy = policy  # may be another one, once the device is known
        self.host_s_per_row = HOST_S_PER_ROW  # until it is measured
        self._warm = list[PreparingChild]()  # and nothing to do yet

    def start_early(self, settings: JobSettings) -> None:
        """Start some while the model is loaded, where it looks as if they were needed."""
        on_gpu = settings.device.startswith("cuda:") or bool(visible_gpus(settings.device))
        if settings.text is not None and (on_gpu if settings.preparers is None else settings.preparers):
            self._start(min(_WARM, PreparersPolicy(usable_threads(), on_cpu=False, asked=settings.preparers).most))

    def warm(self, preparer: RowPreparer, rows: Sequence[Any], device_s_per_row: float) -> None:
        """Start some of those that these rows ask for: they are ready when the plan is. Not for a handful of rows."""
        self.host_s_per_row = _host_s(preparer, rows[:_MOST_ROWS]) or self.host_s_per_row
        wanted = min(_WARM, self.policy.wanted(device_s_per_row, self.host_s_per_row))
        if len(rows) >= _FEWEST_ROWS:
            self._start(wanted)

    def are_for(self, plan: Plan) -> bool:
        """Whether a job is worth a process: one that ends before it could start is done by threads."""
        is_short = plan.rows is not None and plan.rows < _SHORT_ROWS and self.policy.asked is None
        return not is_short and self.policy.wanted(plan.seconds_per_row, self.host_s_per_row) > 0

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

    def _start(self, count: int) -> None:
        self._warm += [PreparingChild() for _ in range(count - len(self._warm))]


def _host_s(preparer: RowPreparer, rows: Sequence[Any]) -> float | None:
    """Of the processor, for a row; None where no row can be prepared."""
    done, began_s = 0, time.thread_time()
    for at in range(0, len(rows), _FEW_ROWS):
        done += sum(len(part.lengths) for part in _good_parts(preparer, rows[at : at + _FEW_ROWS]))
    return (time.thread_time() - began_s) / done + _READ_AND_WRITTEN_S if done else None


def _good_parts(preparer: RowPreparer, rows: Sequence[Any]) -> list[Any]:
    return [part for _, part in prepared_parts(preparer, rows) if not isinstance(part, Exception)]
