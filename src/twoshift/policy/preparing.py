"""How many processes read, prepare and write a job's rows for one device."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["HOST_S_PER_ROW", "PreparersPolicy"]

HOST_S_PER_ROW = 60e-6  # until it is measured: a text of some 30 tokens, read, tokenised and written
_BUSY = 0.8  # share of a process's time that is planned with: windows come unevenly
_SPARED_CORES = 2  # for the worker's own threads and the device's driver
_THREADS_FEED = 0.1  # of a core: so little is done by threads of the worker without slowing its engine


@dataclass(frozen=True, slots=True)
class PreparersPolicy:
    """Of one worker."""

    cores: int  # that it may use
    on_cpu: bool  # the device is these cores: other processes would only take them from it
    asked: int | None = None  # by the user; None: as many as the device needs

    @property
    def most(self) -> int:
        """More there never are; 0: threads of the worker prepare."""
        if self.asked is not None:
            return min(self.asked, self.cores)
        return 0 if self.on_cpu else max(1, self.cores - _SPARED_CORES)

    def wanted(self, device_s_per_row: float, host_s_per_row: float = HOST_S_PER_ROW) -> int:
        """As many as keep the device busy."""
        if self.asked is not None or not self.most:
            return self.most
        busy_cores = host_s_per_row / device_s_per_row
        return 0 if busy_cores < _THREADS_FEED else min(self.most, math.ceil(busy_cores / _BUSY))
