"""What an engine tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.policy.lanes import LaneUse
from twoshift.types import Lane

__all__ = ["EngineStats", "Health"]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the device has done; over the lanes, device seconds sum to `busy_s`."""

    lanes: dict[Lane, LaneUse]
    waits_s: dict[Lane, float]  # summed over rows, from submission to launch
    calls: int
    busy_s: float
    failed_calls: int
    out_of_memory: int  # of them
    max_tokens: int  # the cap now; lower than configured after the memory ran out


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the loop lives and keeps up."""

    healthy: bool
    reason: str
    running_s: float  # of the call on the device
    oldest_wait_s: float  # of the live rows
