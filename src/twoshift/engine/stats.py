"""What an engine tells about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from twoshift.policy.lane_values import LaneUse
from twoshift.types import Lane

__all__ = ["BESIDE_BATCH", "BESIDE_NOTHING", "CALL_ROWS", "CallRows", "EngineStats", "Health", "LiveTime", "Queue"]

BESIDE_BATCH, BESIDE_NOTHING = "batch", "nothing"

CALL_ROWS = tuple(1 << k for k in range(12))  # upper bounds of the counts below; one more counts what is larger


@dataclass(slots=True)
class CallRows:
    """How many calls had how many rows."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(CALL_ROWS) + 1))
    rows: int = 0

    def add(self, rows: int) -> None:
        """One call."""
        self.counts[min((rows - 1).bit_length(), len(CALL_ROWS))] += 1
        self.rows += rows


@dataclass(slots=True)
class LiveTime:
    """What live rows took, from their submission to their result."""

    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits in a lane."""

    rows: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the device has done; over the lanes, device seconds sum to `busy_s`."""

    lanes: dict[Lane, LaneUse]
    waits_s: dict[Lane, float]  # summed over rows, from submission to launch
    call_rows: dict[Lane, CallRows]  # of calls with live rows, and of those without
    calls: int
    busy_s: float
    failed_calls: int
    out_of_memory: int  # of them
    max_tokens: int  # the cap now; lower than configured after the memory ran out
    tenants: dict[str, LaneUse] = field(default_factory=dict[str, LaneUse])  # of the live lane: whose rows had what
    # of live rows, by what else the device had to do: BESIDE_BATCH or BESIDE_NOTHING
    live: dict[str, LiveTime] = field(default_factory=dict[str, LiveTime])


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the loop lives and keeps up."""

    healthy: bool
    reason: str
    running_s: float  # of the call on the device
    oldest_wait_s: float  # of the live rows
