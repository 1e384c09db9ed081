"""Predicts when a job ends, how likely it meets its window, and how many workers it needs."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from twoshift.errors import InvalidInput
from twoshift.policy.duration_histogram import DurationHistogram

__all__ = ["DeadlineLimits", "DeadlinePolicy", "Outlook", "Verdict"]

_Z = NormalDist()
_SURE = 1e-4  # probabilities closer to 0 or 1 than this are rounded


class Verdict(enum.StrEnum):
    """Prospects of a job, in one word."""

    UNKNOWN = "unknown"  # nothing was observed or planned
    ON_TRACK = "on_track"
    AT_RISK = "at_risk"
    WILL_MISS = "will_miss"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class DeadlineLimits:
    """Confidence levels, and how fast old measurements lose weight."""

    target_chance: float = 0.9  # on track at or above it, missing at or below its complement
    half_life_s: float = 3600.0  # an observation this old counts half
    drift: float = 0.05  # relative error of the rate that no amount of evidence removes
    planned_error: float = 0.4  # relative error of a rate that was planned, not observed
    slowest_factor: float = math.inf  # the slowest shard over the median: bounded where there is speculation

    def __post_init__(self) -> None:
        if not 0.5 <= self.target_chance < 1:
            raise InvalidInput("target_chance", self.target_chance, "a number of at least 0.5 and less than 1")
        if not 0 < self.half_life_s < math.inf:
            raise InvalidInput("half_life_s", self.half_life_s, "a finite number of seconds above 0")
        if not 0 <= self.drift < 1:
            raise InvalidInput("drift", self.drift, "a number of at least 0 and less than 1")
        if not 0 < self.planned_error < math.inf:
            raise InvalidInput("planned_error", self.planned_error, "a finite number above 0")
        if not self.slowest_factor >= 1:
            raise InvalidInput("slowest_factor", self.slowest_factor, "a number of 1 or more")


@dataclass(frozen=True, slots=True)
class Outlook:
    """Predictions about the end of a job, on the caller's clock; None where nothing can be predicted."""

    verdict: Verdict
    eta_s: float | None  # as likely later as earlier
    p10_s: float | None
    p90_s: float | None
    chance: float | None  # probability to end by the deadline
    laxity_s: float | None  # deadline minus ETA; negative if late
    workers_needed: int | None  # for the target chance; None: unknown, or no number is enough


@dataclass(frozen=True, slots=True)
class _Model:
    """Predicts the seconds that the rest of a job takes, at any quantile."""

    items: float
    worker_items_per_s: float
    shards: float  # remaining shards: more workers than this do not help
    spread: float  # log standard deviation of the mean rate
    slowest_s: Callable[[float, float], float]  # (quantile, draws): what the slowest shard adds

    def seconds(self, quantile: float, workers: float) -> float:
        busy = min(workers, self.shards)
        work_s = self.items / (busy * self.worker_items_per_s)
        # one quantile for both: a slow fleet has slow stragglers, and it keeps every quantile monotone
        return work_s * math.exp(self.spread * _Z.inv_cdf(quantile)) + self.slowest_s(quantile, busy)

    def chance(self, within_s: float, workers: float) -> float:
        if within_s <= 0 or self.seconds(_SURE, workers) > within_s:
            return 0.0
        if self.seconds(1 - _SURE, workers) <= within_s:
            return 1.0
        low, high = _SURE, 1 - _SURE
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if self.seconds(middle, workers) <= within_s else (low, middle)
        return low

    def workers_needed(self, within_s: float, chance: float) -> int | None:
        work_s = self.items / self.worker_items_per_s * math.exp(self.spread * _Z.inv_cdf(chance))
        workers = 1
        # more workers draw a slower slowest shard: climbing from one ends at the fewest that suffice
        while True:
            left_s = within_s - self.slowest_s(chance, min(workers, self.shards))
            if left_s <= 0 or work_s / left_s > self.shards:
                return None
            enough = math.ceil(work_s / left_s)
            if enough <= workers:
                return workers
            workers = enough


class DeadlinePolicy:
    """Learns from finished shards and predicts when the rest is done.

    A job ends with its slowest shard, so the ETA is the remaining work divided by the fleet's rate, plus the time by
    which the slowest of the last shards exceeds the mean.
    """

    def __init__(
        self,
        deadline_s: float,
        planned_items_per_s: float | None = None,
        limits: DeadlineLimits | None = None,
        after_s: float = 0.0,
    ) -> None:
        """`after_s` is what the job does after its last item, whatever the number of workers."""
        if math.isnan(deadline_s):
            accepted = "a point in time in seconds, on the clock of now_s, or inf for no deadline"
            raise InvalidInput("deadline_s", deadline_s, accepted)
        if planned_items_per_s is not None and not 0 < planned_items_per_s < math.inf:
            accepted = "a finite number of items per second above 0, or None"
            raise InvalidInput("planned_items_per_s", planned_items_per_s, accepted)
        self.deadline_s = deadline_s
        self.limits = limits or DeadlineLimits()
        self._planned_items_per_s, self._after_s = planned_items_per_s, after_s
        self._seen = _Evidence(self.limits.half_life_s)

    def observed(self, items: float, seconds: float, now_s: float) -> None:
        """A worker finished a shard of `items` items in `seconds`."""
        if not 0 < items < math.inf:
            raise InvalidInput("items", items, "a finite number above 0")
        if not 0 < seconds < math.inf:
            raise InvalidInput("seconds", seconds, "a finite number of seconds above 0")
        self._seen.add(items, seconds, now_s)

    def lost(self, seconds: float, now_s: float) -> None:
        """A worker lost this many seconds, for example on a shard that it lost or on a restart."""
        if not 0 <= seconds < math.inf:
            raise InvalidInput("seconds", seconds, "a finite number of seconds, 0 or more")
        self._seen.add_lost(seconds, now_s)

    def outlook(self, remaining_items: float, workers: int, now_s: float) -> Outlook:
        """Predict the end of a job with this much work left, on this many workers."""
        if not 0 <= remaining_items < math.inf:
            raise InvalidInput("remaining_items", remaining_items, "a finite number, 0 or more")
        if workers < 0:
            raise InvalidInput("workers", workers, "0 or more")
        left_s = self.deadline_s - now_s
        if remaining_items == 0:
            chance = 1.0 if left_s >= 0 else 0.0
            return Outlook(Verdict.DONE, now_s, now_s, now_s, chance, left_s, 0)
        now_s, left_s = now_s + self._after_s, left_s - self._after_s
        model = self._model(remaining_items)
        if model is None:
            return Outlook(Verdict.UNKNOWN, None, None, None, None, None, None)
        needed = model.workers_needed(left_s, self.limits.target_chance)
        if workers == 0:
            chance = 0.0 if left_s < math.inf else 1.0
            return Outlook(self._verdict(chance), None, None, None, chance, None, needed)
        p10_s, eta_s, p90_s = (now_s + model.seconds(q, workers) for q in (0.1, 0.5, 0.9))
        chance = model.chance(left_s, workers)
        return Outlook(self._verdict(chance), eta_s, p10_s, p90_s, chance, self.deadline_s - eta_s, needed)

    def workers_for(self, remaining_items: float, chance: float, now_s: float) -> int | None:
        """Workers that finish the rest in time with this probability; None if no number does, or if it is unknown."""
        model = self._model(remaining_items) if remaining_items > 0 else None
        return None if model is None else model.workers_needed(self.deadline_s - now_s, chance)

    @property
    def evidence(self) -> float:
        """Number of finished shards that it has learned from; old ones count less."""
        return self._seen.count

    @property
    def mean_shard_s(self) -> float:
        """Mean seconds of a shard; 0 before the first shard."""
        return self._seen.mean_s if self._seen.count else 0.0

    def _verdict(self, chance: float) -> Verdict:
        if chance >= self.limits.target_chance:
            return Verdict.ON_TRACK
        # the complement rounds: 1 - 0.9 is a little below 0.1
        return Verdict.WILL_MISS if chance <= 1 - self.limits.target_chance + 1e-9 else Verdict.AT_RISK

    def _model(self, items: float) -> _Model | None:
        seen = self._seen
        if seen.count == 0:
            if self._planned_items_per_s is None:
                return None
            # nothing is known of the shards: assume that any number of workers has one each
            return _Model(items, self._planned_items_per_s, math.inf, self.limits.planned_error, _no_tail)
        shards = max(1.0, items / seen.mean_items)
        variance = seen.variance_ratio
        spread = math.sqrt(variance * (1 / seen.count + 1 / shards) + self.limits.drift**2)
        scatter = math.sqrt(math.log1p(variance))
        median_s, mean_s = seen.durations.quantile(0.5), seen.mean_s
        cap_s = self.limits.slowest_factor * median_s

        def slowest_s(quantile: float, draws: float) -> float:
            share = min(quantile ** (1 / draws), 1 - 1e-12)
            # the fitted curve speaks where fewer were seen than are still to be drawn
            fitted_s = median_s * math.exp(scatter * _Z.inv_cdf(share))
            return max(0.0, min(max(seen.durations.quantile(share), fitted_s), cap_s) - mean_s)

        return _Model(items, seen.items_per_s, shards, spread, slowest_s)


def _no_tail(quantile: float, draws: float) -> float:
    return 0.0


class _Evidence:
    """Recency-weighted sums over finished shards: constant memory, constant time."""

    _PRIOR_COUNT, _PRIOR_VARIANCE = 2.0, 0.25  # two imaginary shards that were 50 % off

    def __init__(self, half_life_s: float) -> None:
        self.durations = DurationHistogram()
        self._half_life_s = half_life_s
        self._origin_s: float | None = None  # where a weight is 1; later ones weigh more
        self._weight = self._weight_squared = 0.0
        self._items = self._busy_s = self._lost_s = 0.0
        self._item_s = self._item_s_squared = 0.0

    def add(self, items: float, seconds: float, now_s: float) -> None:
        weight, item_s = self._weigh(now_s), seconds / items
        self._weight += weight
        self._weight_squared += weight * weight
        self._items += weight * items
        self._busy_s += weight * seconds
        self._item_s += weight * item_s
        self._item_s_squared += weight * item_s * item_s
        self.durations.add(seconds, weight)

    def add_lost(self, seconds: float, now_s: float) -> None:
        self._lost_s += self._weigh(now_s) * seconds

    def _weigh(self, now_s: float) -> float:
        if self._origin_s is None:
            self._origin_s = now_s
        age = (now_s - self._origin_s) / self._half_life_s
        if age > 32:  # rebase before the weights lose precision
            self._scale(2.0 ** -min(age, 500.0))
            self._origin_s, age = now_s, 0.0
        return 2.0 ** max(age, -500.0)

    def _scale(self, factor: float) -> None:
        self._weight *= factor
        self._weight_squared *= factor * factor
        self._items *= factor
        self._busy_s *= factor
        self._lost_s *= factor
        self._item_s *= factor
        self._item_s_squared *= factor
        self.durations.scale(factor)

    @property
    def count(self) -> float:
        """Number of equally weighted shards that this evidence is worth."""
        return self._weight**2 / self._weight_squared if self._weight_squared > 0 else 0.0

    @property
    def items_per_s(self) -> float:
        return self._items / (self._busy_s + self._lost_s)

    @property
    def mean_items(self) -> float:
        return self._items / self._weight

    @property
    def mean_s(self) -> float:
        return self._busy_s / self._weight

    @property
    def variance_ratio(self) -> float:
        """Variance of the time an item takes, over its mean squared; wide while there is little evidence."""
        mean = self._item_s / self._weight
        seen = max(0.0, self._item_s_squared / self._weight / mean**2 - 1)
        prior = self._PRIOR_COUNT * self._PRIOR_VARIANCE
        return (prior + self.count * seen) / (self._PRIOR_COUNT + self.count)
