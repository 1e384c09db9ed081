"""Keeps a cost curve up to date while it is used, in bounded memory."""

from __future__ import annotations

import math
import statistics
from collections import deque

from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.fit import refit, requantile
from twoshift.policy.usual import UsualLevel
from twoshift.types import CallSize

__all__ = ["OTHER_DEVICE", "STALE_S", "CostLearner"]

OTHER_DEVICE = math.log(1.5)  # from this jump on, older samples describe another device
STALE_S = 30.0  # after which a call no longer says how quick the device is

_RECENT = 9  # calls whose median tells a drift from a stall
_AGREEING = 5  # of them, before anything is believed
_RETURNING = 3  # and before it is believed that a slow spell is over
_DRIFT = math.log(1.1)
_STEP = math.log(2.0)  # one rescaling changes the curve by no more than this
_QUICKER = math.log(1.25)  # than usual: no noise, but news
_PER_BUCKET = 8  # newest samples kept for each size class
_REFIT_CALLS = 256
_REFIT_S, _REFIT_FEW = 60.0, 32  # where there is little traffic: at the latest after this time, with so many calls
_VOTE_S = 0.5  # between calls that are asked what is usual
_HALF_LIFE = 512  # calls after which a sample counts half
_HALF_LIFE_S = 300.0  # or seconds
_EVIDENCE = 3  # calls of about one size, before they say how quickly such calls can run
_FRESH_S = 60.0  # and for how long they say so


class CostLearner:
    """Keeps a CallCost true to a device that warms up, slows down or is shared.

    Three speeds: a jump of all recent calls rescales the curve within a handful of calls, a refit corrects its shape
    from recency-weighted samples, and what the device does usually, to which a curve returns when its evidence is
    old, follows in minutes. One stalled call moves none of them.
    """

    __slots__ = (
        "_buckets",
        "_calls",
        "_is_borrowed",
        "_recent",
        "_refit_calls",
        "_refit_s",
        "_sizes",
        "_slow_s",
        "_times_s",
        "_usual_level",
        "_vote_s",
        "cost",
        "last_s",
        "level",
        "since_s",
        "usual",
    )

    def __init__(self, cost: CallCost) -> None:
        self.cost = cost
        self.usual = cost  # the profile, or what was learned since
        self.level = 0.0  # log(cost / usual)
        self._is_borrowed = False  # the level is somebody else's word
        self.last_s = -math.inf  # when the newest call ended
        self._slow_s = -math.inf  # when the newest call ended that was as slow as the curve says, while that is slow
        self.since_s = -math.inf  # when the oldest call ended that the last rescaling was made of
        self._usual_level = UsualLevel()
        self._vote_s = -math.inf  # when the next call is asked
        self._calls = self._refit_calls = 0
        self._refit_s = math.inf  # when the last one was; or the first time that one might have been
        self._recent: deque[float] = deque(maxlen=_RECENT)  # log(measured / predicted) since the last change
        self._times_s: deque[float] = deque(maxlen=_RECENT)  # when those calls ended
        self._sizes: deque[CallSize] = deque(maxlen=_RECENT)
        # size class -> (call number, size, seconds, when it ended)
        self._buckets: dict[int, deque[tuple[int, CallSize, float, float]]] = {}

    def observed(self, size: CallSize, seconds: float, ended_s: float = 0.0) -> bool:
        """Learn from one finished call; True if the curve, or the usual level, has changed."""
        if size.rows < 1 or not (math.isfinite(seconds) and seconds > 0):
            return False  # a clock that did not move says nothing about the device
        self._calls += 1
        self._is_borrowed = False
        self._remember(size, seconds, ended_s)
        ratio = math.log(seconds / self.cost.seconds(size))
        recent, times_s = self._recent, self._times_s
        recent.append(ratio)
        times_s.append(ended_s)
        self._sizes.append(size)
        self.last_s = ended_s
        while times_s[0] < ended_s - STALE_S:
            times_s.popleft()
            recent.popleft()
            self._sizes.popleft()
        shifted = ended_s >= self._vote_s and self._vote(size, ratio, ended_s)
        if self.level > _DRIFT and self._is_spell_over(ratio, ended_s):
            self.take_level(0.0)
            return True
        if self._drifted():
            return True
        if self._calls % _REFIT_FEW == 0 and self._is_refit_due(ended_s) and self._refit(size, ended_s):
            return True
        return shifted

    @property
    def own(self) -> CallCost:
        """The curve by its own calls: the usual one while only others say how slow the device is."""
        return self.usual if self._is_borrowed else self.cost

    def forget(self) -> bool:
        """Return to the usual level, because the recent measurements are too old; True if that changes the curve."""
        changed = self.cost != self.usual
        self.take_level(0.0)
        return changed

    def take_level(self, level: float, now_s: float = -math.inf) -> None:
        """Be so much slower than usual (a logarithm), on the word of somebody else; own evidence is too old."""
        self._slow_s = now_s
        self._is_borrowed = level != 0.0
        self.cost = self.usual if level == 0.0 else self.usual.scaled(math.exp(level))
        self.level = level
        self._clear_recent()
        self._buckets.clear()

    def scale_usual(self, factor: float) -> None:
        """The device is usually `factor` times as slow, as another source says."""
        self.usual, self.cost = self.usual.scaled(factor), self.cost.scaled(factor)
        self._usual_level.clear()
        self._clear_recent()

    def fastest_s(self, size: CallSize, now_s: float) -> float | None:
        """Time of the fastest recent call of about this size; None if there were too few."""
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

    def _clear_recent(self) -> None:
        self._recent.clear()
        self._times_s.clear()
        self._sizes.clear()

    def _vote(self, size: CallSize, ratio: float, ended_s: float) -> bool:
        """Ask this call what is usual; True when that has changed."""
        self._vote_s = ended_s + _VOTE_S
        shift = self._usual_level.observed(self.level + ratio, ended_s)
        if not shift:
            return False
        self.usual = self.usual.moved(size, math.exp(shift))
        self.level -= shift
        self._slow_s = ended_s
        return True

    def _is_spell_over(self, ratio: float, ended_s: float) -> bool:
        """Whether calls were slower than usual long ago, and this one is not: few calls need no majority."""
        if ratio > -_DRIFT:
            self._slow_s = ended_s
        return ended_s - self._slow_s > STALE_S

    def _drifted(self) -> bool:
        recent = self._recent
        count = len(recent)
        if count < _AGREEING and not (count >= _RETURNING and self.level > OTHER_DEVICE):
            return False
        drift = sorted(recent)[count // 2]
        if abs(drift) <= _DRIFT or (count < _AGREEING and drift > 0):
            return False
        spread = statistics.median(abs(each - drift) for each in recent)
        if abs(drift) <= 4 * spread / math.sqrt(count):
            return False
        self._rescale(self._sizes[recent.index(drift)], drift, count)
        return True

    def _rescale(self, size: CallSize, drift: float, count: int) -> None:
        if abs(drift) >= OTHER_DEVICE:
            self._drop_before(self._calls - (count + 1) // 2)
        self.since_s, self._slow_s = self._times_s[0], self.last_s
        slow = self.level
        step = max(-max(_STEP, slow), min(_STEP, drift))  # all the way back to what is usual at once
        self.level = slow + step
        if slow > OTHER_DEVICE >= abs(self.level):
            self.cost = self.usual.scaled(math.exp(self.level))  # the shape and the scatter of a slow spell end with it
        elif self.level > OTHER_DEVICE:
            self.cost = self.cost.scaled(math.exp(step))  # the whole device is slow
        else:
            self.cost = self.cost.moved(size, math.exp(step))
        if self.level < -_QUICKER:
            self.usual, self.level = self.cost, 0.0
            self._usual_level.clear()
        self._clear_recent()

    def _drop_before(self, call: int) -> None:
        for size_class in list(self._buckets):
            newer = deque((s for s in self._buckets[size_class] if s[0] > call), maxlen=_PER_BUCKET)
            if newer:
                self._buckets[size_class] = newer
            else:
                del self._buckets[size_class]

    def _is_refit_due(self, now_s: float) -> bool:
        calls = self._calls - self._refit_calls
        self._refit_s = min(self._refit_s, now_s)
        return calls >= _REFIT_CALLS or (calls >= _REFIT_FEW and now_s - self._refit_s >= _REFIT_S)

    def _refit(self, size: CallSize, now_s: float) -> bool:
        self._refit_calls, self._refit_s = self._calls, now_s
        kept = [call for bucket in self._buckets.values() for call in bucket]
        if len(kept) < 2 * _PER_BUCKET:
            return False
        samples = [
            Sample(size.rows, max(1, size.tokens), max(1, size.longest), seconds, size.squares)
            for _, size, seconds, _ in kept
        ]
        age = [(self._calls - number) / _HALF_LIFE + (now_s - ended_s) / _HALF_LIFE_S for number, *_, ended_s in kept]
        weights = [0.5**each for each in age]
        tokens = [sample.tokens for sample in samples]
        if len(set(tokens)) < 4 or max(tokens) < 4 * min(tokens):
            # Too narrow a range to tell the overhead from the rest: learn only how calls scatter.
            self.cost = requantile(self.cost, samples, weights)
        else:
            anchors = self._anchors(min(tokens), max(tokens), max(1, sum(s.longest for s in samples) // len(samples)))
            self.cost = refit(self.cost, samples + anchors, weights + [0.25] * len(anchors), len(samples))
        self._clear_recent()
        self._slow_s = now_s
        self.level = math.log(self.cost.seconds(size) / self.usual.seconds(size))
        if abs(self.level) <= _QUICKER:  # a slow spell's shape is its own
            self.usual = self.cost.scaled(math.exp(-self.level))
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
    """Size class of a call: half an octave of tokens."""
    return round(2 * math.log2(max(1, size.tokens)))
