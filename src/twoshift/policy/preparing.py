"""Number of processes that read, prepare and write a job's rows for one device."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["HOST_S_PER_ROW", "SPARED_CORES", "PreparersPolicy", "shared_out"]

HOST_S_PER_ROW = 60e-6  # until it is measured: a text of some 30 tokens, read, tokenised and written
SPARED_CORES = 2  # for the worker's own threads and the device's driver
_BUSY = 0.8  # share of a process's time that is planned with: windows come unevenly
_THREADS_FEED = 0.1  # of a core: so little is done by threads of the worker without slowing its engine


@dataclass(frozen=True, slots=True)
class PreparersPolicy:
    """Sizes the preparing processes of one worker."""

    most: int = 0  # more there never are; 0: threads of the worker prepare
    is_asked: bool = False  # by the user: so many, whatever the device needs

    @classmethod
    def on_machine(cls, cores: int, on_cpu: bool, asked: int | None = None) -> PreparersPolicy:
        """Preparing processes beside a worker with this many cores; none on a CPU, where the model needs the cores."""
        if asked is not None:
            return cls(min(asked, cores), is_asked=True)
        return cls(0 if on_cpu else max(1, cores - SPARED_CORES))

    @classmethod
    def on_cluster(
        cls, free_cpus: int, workers: int, on_cpu: bool, asked: int | None = None
    ) -> tuple[PreparersPolicy, ...]:
        """Of each worker: what was asked for in all, or the CPUs that workers leave free, shared out among them."""
        if asked is not None:
            return tuple(cls(count, is_asked=True) for count in shared_out(asked, workers))
        return tuple(cls(count) for count in shared_out(0 if on_cpu else free_cpus, workers))

    def wanted(self, device_s_per_row: float, host_s_per_row: float = HOST_S_PER_ROW) -> int:
        """As many as keep the device busy."""
        if self.is_asked or not self.most:
            return self.most
        busy_cores = host_s_per_row / device_s_per_row
        return 0 if busy_cores < _THREADS_FEED else min(self.most, math.ceil(busy_cores / _BUSY))


def shared_out(total: int, workers: int) -> tuple[int, ...]:
    """Divide a number evenly among the workers; the first workers get one more."""
    return tuple(total // workers + (number < total % workers) for number in range(workers))
