"""The cost curve while it is in use: it follows the device with bounded memory."""

from __future__ import annotations

import math
import statistics
from collections import deque

from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.fit import refit, requantile
from twoshift.types import CallSize

__all__ = ["CostLearner"]

_RECENT = 9  # calls whose median tells a drift from a stall
_AGREEING = 5  # of them, before anything is believed
_DRIFT = math.log(1.1)
_STEP = math.log(2.0)  # one rescaling changes the curve by no more than this
_OTHER_DEVICE = math.log(1.5)  # from this jump on, older samples describe another device
_PER_BUCKET = 8  # newest samples kept for each size class
_REFIT_EVERY = 256  # calls
_HALF_LIFE = 512  # calls after which a sample counts half


class CostLearner:
    """Keeps a CallCost true to a device that warms up, slows down or is shared.

    Two speeds: a jump of all recent calls rescales the curve within a handful of calls, a slow refit
    corrects its shape from recency-weighted samples. One stalled call moves neither.
    """

    __slots__ = ("_buckets", "_calls", "_measured", "_recent", "cost")

    def __init__(self, cost: CallCost) -> None:
        self.cost = cost
        self._measured = cost
        self._calls = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)  # log(measured / predicted) since the last change
        self._buckets: dict[int, deque[tuple[int, CallSize, float]]] = {}  # size class -> (call number, size, seconds)

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

    def forget(self) -> bool:
        """Believe the profile again: what was learned is too old; True when that changes the curve."""
        changed = self.cost != self._measured
        self.cost = self._measured
        self._recent.clear()
        self._buckets.clear()
        return changed

    def _remember(self, size: CallSize, seconds: float) -> None:
        size_class = round(2 * math.log2(max(1, size.tokens)))
        bucket = self._buckets.get(size_class)
        if bucket is None:
            bucket = self._buckets[size_class] = deque(maxlen=_PER_BUCKET)
        bucket.append((self._calls, size, seconds))

    def _drifted(self) -> bool:
        recent = self._recent
        if len(recent) < _AGREEING:
            return False
        drift = sorted(recent)[len(recent) // 2]
        if abs(drift) <= _DRIFT:
            return False
        spread = statistics.median(abs(each - drift) for each in recent)
        if abs(drift) <= 4 * spread / math.sqrt(len(recent)):
            return False
        if abs(drift) >= _OTHER_DEVICE:
            self._drop_before(self._calls - len(recent) // 2)
        self.cost = self.cost.scaled(math.exp(max(-_STEP, min(_STEP, drift))))
        recent.clear()
        return True

    def _drop_before(self, call: int) -> None:
        for size_class in list(self._buckets):
            newer = deque((s for s in self._buckets[size_class] if s[0] > call), maxlen=_PER_BUCKET)
            if newer:
                self._buckets[size_class] = newer
            else:
                del self._buckets[size_class]

    def _refit(self) -> bool:
        kept = [call for bucket in self._buckets.values() for call in bucket]
        if len(kept) < 2 * _PER_BUCKET:
            return False
        samples = [
            Sample(size.rows, max(1, size.tokens), max(1, size.longest), seconds, size.squares)
            for _, size, seconds in kept
        ]
        weights = [0.5 ** ((self._calls - number) / _HALF_LIFE) for number, _, _ in kept]
        tokens = [sample.tokens for sample in samples]
        if len(set(tokens)) < 4 or max(tokens) < 4 * min(tokens):
            # Too narrow a range to tell the overhead from the rest: learn only how calls scatter.
            self.cost = requantile(self.cost, samples, weights)
        else:
            anchors = self._anchors(min(tokens), max(tokens), max(1, sum(s.longest for s in samples) // len(samples)))
            self.cost = refit(self.cost, samples + anchors, weights + [0.25] * len(anchors), len(samples))
        self._recent.clear()
        return True

    def _anchors(self, smallest: int, largest: int, length: int) -> list[Sample]:
        """Where nothing was measured lately the curve stays what it was; in rows of about `length` tokens."""
        sizes = [smallest // 4, smallest // 16, 4 * largest, 16 * largest, 64 * largest]
        # Rows of one length alone cannot tell what a row costs from what its tokens do.
        lengths = [length] if self.cost.per_row_s == 0 else [max(1, length // 4), length, 4 * length]
        calls = [CallSize.uniform(max(1, n // each), min(n, each)) for n in sizes if n >= 1 for each in lengths]
        made = [Sample(c.rows, c.tokens, c.longest, self.cost.seconds(c), c.squares) for c in calls]
        return [sample for sample in made for _ in range(_PER_BUCKET)]
