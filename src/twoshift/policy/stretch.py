"""How much longer a queue takes than was predicted of it."""

from __future__ import annotations

import math

__all__ = ["Stretch"]

_LOOK_S, _LEARNED = 0.1, 0.3  # how often it is learned; and how much of what was seen since
_MOST = 4.0


class Stretch:
    """Of one replica: its processor and its interpreter may be somebody else's for part of the time.

    What was predicted and what it took are summed up, so that long waits count more than short ones.
    """

    __slots__ = ("_looked_s", "_predicted_s", "_took_s", "factor")

    def __init__(self) -> None:
        self.factor = 1.0
        self._took_s = self._predicted_s = 0.0  # since it was learned last
        self._looked_s = -math.inf

    def observed(self, took_s: float, predicted_s: float, now_s: float) -> None:
        """A request that was predicted to take so long, with others before it, has taken so long."""
        self._took_s += took_s
        self._predicted_s += predicted_s
        since_s = now_s - self._looked_s
        if since_s < _LOOK_S:
            return
        if since_s < math.inf:
            seen = self._took_s / self._predicted_s if self._predicted_s > 0.0 else 1.0
            fresh = 1.0 - (1.0 - _LEARNED) ** (since_s / _LOOK_S)
            self.factor += fresh * (min(_MOST, max(1.0, seen)) - self.factor)
        self._took_s = self._predicted_s = 0.0
        self._looked_s = now_s
