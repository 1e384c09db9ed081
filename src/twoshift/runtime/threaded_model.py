"""Models on the CPU whose library takes the number of threads with a call."""

from __future__ import annotations

import os
from typing import Any, Protocol

from numpy.typing import NDArray

from twoshift.policy.threads import ThreadPlan, thread_candidates
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.devices import cpu_device, usable_threads
from twoshift.runtime.host_model import ColumnModel, HostModel

__all__ = ["ThreadedColumnModel", "ThreadedModel", "Threads"]

_SPINS = "10000"  # of libgomp: about 50 us


class Threads:
    """How many threads the calls of a model may use: as the user says, or as is measured."""

    def __init__(self, threads: int | None) -> None:
        self.most = usable_threads(threads)
        self.candidates = (self.most,) if threads is not None else thread_candidates(self.most)
        # A call's threads wait for each other in a loop: where others use the cores, too, that keeps away the one that
        # they wait for. Read by the libraries as they are imported.
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)

    @property
    def device(self) -> str:
        """How a profile names the CPU: the same model with a fixed number is another curve."""
        return cpu_device(self.most, chosen=len(self.candidates) > 1)


class ThreadedColumnModel(ColumnModel, Protocol):
    """A column model whose next call can use another number of threads; its answers do not depend on it."""

    def use_threads(self, threads: int) -> None:
        """From the next call on; free where nothing changes."""
        ...


class ThreadedModel(HostModel):
    """A ThreadedRuntime."""

    def __init__(self, info: RuntimeInfo, model: ThreadedColumnModel, threads: Threads) -> None:
        super().__init__(info, model)
        self._threaded = model
        self.thread_candidates = threads.candidates
        # Until something is measured, as the library or the model has it
        self.threads = ThreadPlan.fixed(threads.most) if len(threads.candidates) == 1 else None

    def use_threads(self, plan: ThreadPlan) -> None:
        """As many as the plan says for a call's rows, from the next call on."""
        self.threads = plan

    def _predict(self, columns: dict[str, NDArray[Any]], rows: int) -> Columns:
        if self.threads is not None:
            self._threaded.use_threads(self.threads.at(rows))
        return super()._predict(columns, rows)
