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
_EVIDENCE = 3  # calls of about one size, before they say how quickly such calls can run
_FRESH_S = 60.0  # and for how long they say so


class CostLearner:
    """Keeps a CallCost true to a device that warms up, slows down or is shared.

    Two speeds: a jump of all recent calls rescales the curve within a handful of calls, a slow refit
    corrects its shape from recency-weighted samples. One stalled call moves neither.
    """

    __slots__ = ("_buckets", "_calls", "_recent", "best", "cost")

    def __init__(self, cost: CallCost) -> None:
        self.cost = cost
        self.best = cost  # the profile, or what was learned since where that is quicker
        self._calls = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)  # log(measured / predicted) since the last change
        # size class -> (call number, size, seconds, when it ended)
        self._buckets: dict[int, deque[tuple[int, CallSize, float, float]]] = {}

    def observed(self, size: CallSize, seconds: float, ended_s: float = 0.0) -> bool:
        """Learn from one finished call; True when the curve has changed."""
        if size.rows < 1 or not (math.isfinite(seconds) and seconds > 0):
            return False  # a clock that did not move says nothing about the device
        self._calls += 1
        self._remember(size, seconds, ended_s)
        self._recent.append(math.log(seconds / self.cost.seconds(size)))
        if not (self._drifted() or (self._calls % _REFIT_EVERY == 0 and self._refit())):
            return False
        if self.cost.seconds(size) < self.best.seconds(size):
            self.best = self.cost
        return True

    def forget(self) -> bool:
        """Believe the best again: what was learned is too old; True when that changes the curve."""
        changed = self.cost != self.best
        self.cost = self.best
        self._recent.clear()
        self._buckets.clear()
        return changed

    def fastest_s(self, size: CallSize, now_s: float) -> float | None:
        """What a call takes at the least, by the fastest of about its size lately; None where there were too few."""
        size_class = _size_class(size)
        near = [
            seconds / self.cost.seconds(seen)
            for each in range(size_class - 2, size_class + 3)
            for _, seen, seconds, ended_s in self._buckets.get(each, ())
            if now_s - ended_s <= _FRESH_S
        ]
        return None if len(near) < _EVIDENCE else min(near) * self.cost.seconds(size)

    def _remember(self, size: CallSize, seconds: float, ended_s: float) -> None:
        size_class = round(2 * math.log2(max(1, size.tokens)))  # inline: every forward call comes here
        bucket = self._buckets.get(size_class)
        if bucket is None:
            bucket = self._buckets[size_class] = deque(maxlen=_PER_BUCKET)
        bucket.append((self._calls, size, seconds, ended_s))

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
            for _, size, seconds, _ in kept
        ]
        weights = [0.5 ** ((self._calls - number) / _HALF_LIFE) for number, *_ in kept]
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


def _size_class(size: CallSize) -> int:
    """Half an octave of tokens."""
    return round(2 * math.log2(max(1, size.tokens)))
