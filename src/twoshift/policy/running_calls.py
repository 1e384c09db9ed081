"""The calls that run on a device, and when each lane becomes free."""

from __future__ import annotations

import math

from twoshift.errors import InvalidInput
from twoshift.policy.lane_values import Call, LaneLimits, Slot

__all__ = ["RunningCalls"]


class RunningCalls:
    """The calls that run on the device."""

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self.calls: dict[int, tuple[Call, float]] = {}  # number -> the call and its predicted end
        self.quiet_since_s = -math.inf  # when the last call ended

    def launched(self, call: Call, now_s: float) -> None:
        """A call starts."""
        self.calls[call.number] = (call, now_s + call.predicted_s)

    def finished(self, call: Call, elapsed_s: float) -> float:
        """A call ended after this time; returns when it ended."""
        if call.number not in self.calls:
            raise InvalidInput("call", call.number, "a call that is running")
        _, predicted_end_s = self.calls.pop(call.number)
        ended_s = predicted_end_s - call.predicted_s + elapsed_s
        if ended_s > self.quiet_since_s:
            self.quiet_since_s = ended_s
        return ended_s

    @property
    def has_live(self) -> bool:
        """Whether live rows run."""
        return any(call.live for call, _ in self.calls.values())

    @property
    def has_background(self) -> bool:
        """Whether background rows run."""
        return any(call.background for call, _ in self.calls.values())

    def can_launch(self, slot: Slot) -> bool:
        """Whether the slot has capacity for a call."""
        if not self.calls:
            return True
        if slot is Slot.SHARED:
            lanes = self._limits.lanes
            return len(self.calls) < lanes and all(call.slot is slot for call, _ in self.calls.values())
        if slot is Slot.LIVE:
            return all(call.slot is not slot for call, _ in self.calls.values())
        return sum(call.slot is slot for call, _ in self.calls.values()) < self._limits.background_depth

    def busy_until_s(self, now_s: float) -> float:
        """When the call that live rows must wait for is predicted to end; now, where there is none.

        A lane is free by then where there are several: they are not all free later than on the average.
        """
        until_s = now_s
        for call, end_s in self.calls.values():
            if end_s > now_s and call.slot is not Slot.BACKGROUND:
                until_s += (end_s - now_s) / (self._limits.lanes if call.slot is Slot.SHARED else 1)
        return until_s

    def free_s(self, now_s: float) -> list[float]:
        """When each lane is predicted to be free for live rows."""
        lanes = self._limits.lanes
        if lanes == 1:
            return [self.busy_until_s(now_s)]
        free_s = [max(now_s, end_s) for _, end_s in self.calls.values()]
        if any(call.slot is Slot.WHOLE for call, _ in self.calls.values()):
            return free_s * lanes
        return free_s + [now_s] * (lanes - len(free_s))
