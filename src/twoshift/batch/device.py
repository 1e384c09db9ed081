"""What a worker's rows run on: a device of its own, or the engine of a model that also answers live requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from twoshift.batch.calibrate import calibrate
from twoshift.batch.messages import Calibrated
from twoshift.engine import Engine
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.gentle_prepare import gentle_of
from twoshift.engine.waiting import BlockOwner
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Columns, Prepared, PreparedElsewhere, RowPreparer, Runtime, RuntimeInfo

__all__ = ["OwnDevice", "SharedDevice", "WorkDevice"]

_CALL_S = 5.0  # about how long a call should last: long enough to be efficient, short enough to be stopped
_MOST_CALL_ROWS = 2048


class WorkDevice(Protocol):
    """A model that can be measured, and then run."""

    @property
    def info(self) -> RuntimeInfo: ...

    @property
    def row_preparer(self) -> RowPreparer | None:
        """What prepares its rows in other processes; None where only this one can."""
        ...

    @property
    def padding_tokens(self) -> int:
        """That were computed for nothing since the start."""
        ...

    def calibrate(self, rows: Sequence[Any]) -> Calibrated:
        """What these rows take."""
        ...

    def begin(self, seconds_per_row: float) -> BlockEngine:
        """The engine that runs rows from now on."""
        ...

    def close(self) -> None:
        """Let it go."""
        ...


class OwnDevice:
    """A model that was loaded for this worker alone."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._engine: Engine | None = None

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self._runtime.info

    @property
    def row_preparer(self) -> RowPreparer | None:
        """What prepares its rows in other processes."""
        return self._runtime.row_preparer if isinstance(self._runtime, PreparedElsewhere) else None

    @property
    def padding_tokens(self) -> int:
        """That were computed for nothing since the start."""
        return getattr(self._runtime, "padding_tokens", 0)

    def calibrate(self, rows: Sequence[Any]) -> Calibrated:
        """What these rows take, on a device where nothing else runs."""
        return calibrate(self._runtime, rows, self._run)

    def begin(self, seconds_per_row: float) -> Engine:
        """An engine with calls as large as is good for throughput."""
        rows = max(1, min(_MOST_CALL_ROWS, int(_CALL_S / seconds_per_row)))
        self._engine = Engine(self._runtime, CallCost.line(0.0, seconds_per_row), LaneLimits(max_rows=rows))
        return self._engine

    def close(self) -> None:
        """Give the device back."""
        (self._engine or self._runtime).close()

    def _run(self, part: Prepared) -> tuple[Columns, float]:
        began_s = time.perf_counter()
        columns = self._runtime.launch([part]).wait()
        return columns, time.perf_counter() - began_s


class SharedDevice:
    """A model that is served: rows ride in the batch lane of its engine, which belongs to the server."""

    def __init__(self, engine: Engine, owner: BlockOwner) -> None:
        self._engine, self._owner = engine, owner
        self._padded_before = self._padding()

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self._engine.runtime.info

    @property
    def row_preparer(self) -> RowPreparer | None:
        """What prepares its rows in other processes."""
        runtime = self._engine.runtime
        return runtime.row_preparer if isinstance(runtime, PreparedElsewhere) else None

    @property
    def padding_tokens(self) -> int:
        """That were computed for nothing since the start, for live rows, too."""
        return self._padding() - self._padded_before

    def calibrate(self, rows: Sequence[Any]) -> Calibrated:
        """What these rows take in the batch lane, by the device's time."""
        return calibrate(self._engine.runtime, rows, self._run, gentle_of(self._engine))

    def begin(self, seconds_per_row: float) -> Engine:
        """The engine that serves."""
        return self._engine

    def close(self) -> None:
        """It goes on serving."""

    def _run(self, part: Prepared) -> tuple[Columns, float]:
        # A few rows, also where the job is held back; before those of all jobs that are measured already
        result = self._engine.submit_block(part, deadline_s=0.0).result()
        self._owner.had(0, 0, result.device_s, riding=False)  # time that it has had, for rows that count later
        if result.errors:
            raise next(iter(result.errors.values()))
        return result.columns, result.device_s

    def _padding(self) -> int:
        return getattr(self._engine.runtime, "padding_tokens", 0)
