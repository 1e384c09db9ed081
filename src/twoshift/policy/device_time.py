"""Divides the device time between calls of two lanes that run at the same time."""

from __future__ import annotations

__all__ = ["DeviceTime"]


class DeviceTime:
    """Divides the busy time of a device evenly among the calls on it; the shares add up to the busy time."""

    __slots__ = ("_at_s", "_shares_s", "busy_s")

    def __init__(self) -> None:
        self.busy_s = 0.0
        self._at_s = 0.0
        self._shares_s: dict[int, float] = {}  # call -> its part so far

    def began(self, call: int, now_s: float) -> None:
        """A call starts on the device, beside the calls that run already."""
        self._advance(now_s)
        self._shares_s[call] = 0.0

    def ended(self, call: int, now_s: float) -> float:
        """The device time of a call that has ended."""
        self._advance(now_s)
        return self._shares_s.pop(call)

    def _advance(self, now_s: float) -> None:
        passed_s = now_s - self._at_s
        if passed_s <= 0:
            return
        self._at_s = now_s
        if not self._shares_s:
            return
        self.busy_s += passed_s
        share_s = passed_s / len(self._shares_s)
        for call in self._shares_s:
            self._shares_s[call] += share_s
