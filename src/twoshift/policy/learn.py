"""The cost curve while it is in use: it follows the device with bounded memory."""

from __future__ import annotations

import math
import statistics
from collections import deque

from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.fit import refit
from twoshift.types import CallSize

__all__ = ["CostLearner"]

_RECENT = 9  # calls whose median tells a drift from a stall
_AGREEING = 5  # of them, before anything is believed
_DRIFT = math.log(1.1)
_PER_BUCKET = 24  # newest samples kept for each size class
_REFIT_EVERY = 256  # calls
_HALF_LIFE = 512  # calls after which a sample counts half


class CostLearner:
    """Keeps a CallCost true to a device that warms up, slows down or is shared.

    Two speeds: a jump of all recent calls rescales the curve within a handful of calls, a slow refit
    corrects its shape from recency-weighted samples. One stalled call moves neither.
    """

    __slots__ = ("_buckets", "_calls", "_recent", "cost")

    def __init__(self, cost: CallCost) -> None:
        self.cost = cost
        self._calls = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)  # log(measured / predicted) since the last change
        self._buckets: dict[int, deque[tuple[int, Sample]]] = {}  # size class -> (call number, sample)

    def observed(self, size: CallSize, seconds: float) -> bool:
        """Learn from one finished call; True when the curve has changed."""
        if size.rows < 1 or not (math.isfinite(seconds) and seconds > 0):
            return False  # a clock that did not move says nothing about the device
        self._calls += 1
        self._remember(size, seconds)
        self._recent.append(math.log(seconds / self.cost.seconds(size)))
        if self._drifted():
            return True
        return self._calls % _REFIT_EVERY == 0 and self._refit()

    def _remember(self, size: CallSize, seconds: float) -> None:
        sample = Sample(size.rows, max(1, size.tokens), max(1, size.longest), seconds, size.squares)
        size_class = round(2 * math.log2(max(1, size.tokens)))
        bucket = self._buckets.get(size_class)
        if bucket is None:
            bucket = self._buckets[size_class] = deque(maxlen=_PER_BUCKET)
        bucket.append((self._calls, sample))

    def _drifted(self) -> bool:
        if len(self._recent) < _AGREEING:
            return False
        drift = statistics.median(self._recent)
        if abs(drift) <= _DRIFT:
            return False
        self.cost = self.cost.scaled(math.exp(drift))
        # What was measured before the jump describes another device.
        keep_after = self._calls - len(self._recent) // 2
        for size_class in list(self._buckets):
            newer = deque((s for s in self._buckets[size_class] if s[0] > keep_after), maxlen=_PER_BUCKET)
            if newer:
                self._buckets[size_class] = newer
            else:
                del self._buckets[size_class]
        self._recent.clear()
        return True

    def _refit(self) -> bool:
        kept = [pair for bucket in self._buckets.values() for pair in bucket]
        sizes = {(sample.tokens, sample.squares) for _, sample in kept}
        if len(sizes) < 4 or max(s[0] for s in sizes) < 4 * min(s[0] for s in sizes):
            return False  # too narrow a range of sizes to tell the overhead from the rest
        weights = [0.5 ** ((self._calls - call) / _HALF_LIFE) for call, _ in kept]
        self.cost = refit(self.cost, [sample for _, sample in kept], weights)
        self._recent.clear()
        return True
