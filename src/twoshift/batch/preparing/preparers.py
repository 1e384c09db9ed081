"""The preparing processes of a worker before its first shard: how many, by its job's first rows, and started early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from twoshift.batch.device import WorkDevice
from twoshift.batch.plan import Plan
from twoshift.batch.preparing.child import PreparingChild
from twoshift.batch.preparing.line import PreparerLine
from twoshift.batch.settings import JobSettings
from twoshift.engine.prepare import prepared_parts
from twoshift.policy.preparing import HOST_S_PER_ROW, PreparersPolicy
from twoshift.ports import RowPreparer
from twoshift.runtime.devices import visible_gpus

__all__ = ["NOT_RUNNING", "WARM", "Places", "Preparers"]

NOT_RUNNING = (
    "No preparing process has started yet; the cluster may have no free CPU. Until one starts, the workers "
    "prepare the rows"
)

_READ_AND_WRITTEN_S = 10e-6  # a row, besides its preparation: of Parquet, with 384 numbers as its answer
_FEW_ROWS = 8  # prepared at a time: by this thread alone, whose time is taken
_FEWEST_ROWS, _MOST_ROWS = 64, 128  # of a sample
_SHORT_ROWS = 16_384  # of a job: a second of work
WARM = 4  # started before it is known how many shards there are
_ANY = 1 << 30
_ROOM_S = 30.0  # after which one that still waits for room, or starts, is told of
_MOST_UNFIT = 3  # in a row, and no more are started: the next would be placed no better


class Places(Protocol):
    """Where preparing processes run."""

    @property
    def is_at_once(self) -> bool:
        """Whether what is started runs; else it may wait for room, for ever."""
        ...

    def policy(self, on_cpu: bool) -> PreparersPolicy:
        """How many there may be for a worker whose device is the CPU, or is none."""
        ...

    def start(self) -> PreparerLine:
        """A new one; raises OSError."""
        ...

    def note(self, told: str) -> None:
        """Something that the user of the job should know."""
        ...


class Preparers:
    """Whoever takes one has to end it."""

    def __init__(self, places: Places) -> None:
        self.policy = PreparersPolicy()  # until the device is known
        self.host_s_per_row = HOST_S_PER_ROW  # until it is measured
        self._places = places
        self._warm = list[PreparingChild]()  # and nothing to do yet
        self._unfit = 0  # in a row

    @property
    def are_elsewhere(self) -> bool:
        """Whether other machines may have them."""
        return not self._places.is_at_once

    def start_early(self, settings: JobSettings) -> None:
        """Start some while the model is loaded, where it looks as if they were needed."""
        on_gpu = settings.device.startswith("cuda:") or bool(visible_gpus(settings.device))
        if settings.text is not None:
            self._start(min(WARM, self._places.policy(on_cpu=not on_gpu).most))

    def device_known(self, device: WorkDevice) -> None:
        """How many there may be; none where only the worker's own process can prepare."""
        if device.row_preparer is not None:
            self.policy = self._places.policy(on_cpu=device.info.device.startswith("cpu"))
        if not self.policy.most:
            self.close()

    def warm(self, preparer: RowPreparer, rows: Sequence[Any], device_s_per_row: float) -> None:
        """Start some of those that these rows ask for: they are ready when the plan is. Not for a handful of rows."""
        self.host_s_per_row = _host_s(preparer, rows[:_MOST_ROWS]) or self.host_s_per_row
        wanted = min(WARM, self.policy.wanted(device_s_per_row, self.host_s_per_row))
        if len(rows) >= _FEWEST_ROWS:
            self._start(wanted)

    def are_for(self, plan: Plan) -> bool:
        """Whether a job is worth a process: one that ends before it could start is done by threads."""
        is_short = plan.rows is not None and plan.rows < _SHORT_ROWS and not self.policy.is_asked
        return not is_short and self.policy.wanted(plan.seconds_per_row, self.host_s_per_row) > 0

    def want(self, count: int) -> None:
        """So many more are to be taken: those that may have to wait for room begin to."""
        if self._places.is_at_once:
            return
        for child in [each for each in self._warm if each.unfit]:
            self._warm.remove(child)
            child.begin(None)
            self.was_unfit(child)
        if self._unfit < _MOST_UNFIT:
            self._start(count)
        now_s = time.monotonic()
        if any(not each.is_up and now_s - each.started_s > _ROOM_S for each in self._warm):
            self._places.note(NOT_RUNNING)

    @property
    def can_take(self) -> int:
        """How many could be taken now."""
        if self._unfit >= _MOST_UNFIT:
            return 0
        return _ANY if self._places.is_at_once else sum(each.is_up and not each.unfit for each in self._warm)

    def take(self) -> PreparingChild | None:
        """One without a task; None: those that there are wait for room."""
        found = next((each for each in self._warm if self._places.is_at_once or (each.is_up and not each.unfit)), None)
        if found is not None:
            self._warm.remove(found)
            return found
        starts = self._places.is_at_once and self._unfit < _MOST_UNFIT
        return PreparingChild(self._places.start) if starts else None

    def was_fit(self) -> None:
        """One has done something."""
        self._unfit = 0

    def was_unfit(self, child: PreparingChild) -> None:
        """It could do nothing for this worker."""
        self._unfit += 1
        self._places.note(f"A preparing process {child.unfit}")

    def close(self) -> None:
        """End those that nobody has taken."""
        for child in self._warm:
            child.begin(None)
            child.kill()  # one that waits for room would wait on
        for child in self._warm:
            child.join()
        self._warm.clear()

    def _start(self, count: int) -> None:
        self._warm += [PreparingChild(self._places.start) for _ in range(count - len(self._warm))]


def _host_s(preparer: RowPreparer, rows: Sequence[Any]) -> float | None:
    """Of the processor, for a row; None where no row can be prepared."""
    done, began_s = 0, time.thread_time()
    for at in range(0, len(rows), _FEW_ROWS):
        done += sum(len(part.lengths) for part in _good_parts(preparer, rows[at : at + _FEW_ROWS]))
    return (time.thread_time() - began_s) / done + _READ_AND_WRITTEN_S if done else None


def _good_parts(preparer: RowPreparer, rows: Sequence[Any]) -> list[Any]:
    return [part for _, part in prepared_parts(preparer.prepare, rows) if not isinstance(part, Exception)]
