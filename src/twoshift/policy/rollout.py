"""The canary's state machine: evidence about a new version in, keep, promote or roll back out."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import assert_never

from twoshift.errors import InvalidInput

__all__ = [
    "Compared",
    "Comparison",
    "Crashed",
    "Evidence",
    "Keep",
    "Promote",
    "RollBack",
    "RolloutDecision",
    "RolloutPolicy",
    "RolloutSettings",
    "Stage",
    "Version",
    "VersionAnswered",
    "Warmed",
    "falls_in_share",
    "wilson_bounds",
]

_MASK = (1 << 64) - 1
_BUCKETS_PER_OCTAVE = 16
_SHORTEST_S = 1e-5
_BUCKETS = 27 * _BUCKETS_PER_OCTAVE  # 10 us to over 20 minutes


class Version(enum.StrEnum):
    """Whose answer it was."""

    STABLE = "stable"
    CANARY = "canary"


class Stage(enum.StrEnum):
    """Where the new version is; the last two are final."""

    LOADING = "loading"
    CANARY = "canary"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True)
class Warmed:
    """The new version is loaded and warm: it may take traffic."""


@dataclass(frozen=True, slots=True)
class VersionAnswered:
    """A version answered a request, or failed to."""

    version: Version
    latency_s: float
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """Both versions answered the same mirrored rows; so many answers disagreed beyond the tolerance."""

    rows: int
    disagreed: int

    def __post_init__(self) -> None:
        _check("disagreed", self.disagreed, 0 <= self.disagreed <= self.rows, f"0 to {self.rows} rows")


@dataclass(frozen=True, slots=True)
class Crashed:
    """A replica of a version died."""

    version: Version
    why: str = "the process died"


Evidence = Warmed | VersionAnswered | Compared | Crashed


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison: the canary's share with its interval, and what is tolerated."""

    name: str
    seen: int
    of: int
    low: float  # at the confidence that a breach needs
    high: float  # at the confidence that a promotion needs
    breach_above: float
    promote_below: float

    @property
    def is_breach(self) -> bool:
        return self.low > self.breach_above

    @property
    def is_good(self) -> bool:
        return self.high <= self.promote_below

    def __str__(self) -> str:
        return f"{self.name} {self.seen} of {self.of} (at most {self.promote_below:.2%} is accepted)"


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the traffic as it is."""

    reason: str
    figures: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class Promote:
    """Give the new version all of the traffic."""

    reason: str
    figures: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class RollBack:
    """Give the old version all of the traffic and drain the new one."""

    reason: str
    figures: tuple[Comparison, ...] = ()


RolloutDecision = Keep | Promote | RollBack


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How much traffic, how much evidence, and how much worse is still accepted."""

    share: float = 0.05
    slo_s: float | None = None
    min_requests: int = 500  # of each version
    min_compared: int = 200  # 0: answers are not mirrored, and not required to agree
    min_s: float = 60.0
    max_s: float = 3600.0  # inconclusive until then: rolled back
    max_loading_s: float = 900.0
    breach_requests: int = 20  # fewer are never a breach, however bad
    error_tolerance: float = 0.01  # more failures than the old version, as a share of requests
    slow_factor: float = 1.1  # a request is slow above the old version's percentile times this
    median_tolerance: float = 0.1
    tail_tolerance: float = 0.02
    disagreement_limit: float = 0.02
    promote_z: float = 2.0
    breach_z: float = 4.0  # looked at after every request, so it needs more than a single look would

    def __post_init__(self) -> None:
        _check("share", self.share, 0 < self.share <= 0.5, "a share of traffic above 0 and up to 0.5")
        for name in ("min_requests", "breach_requests"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "a whole number of at least 1")
        for name in ("min_compared", "min_s", "promote_z", "breach_z", "max_loading_s"):
            value: float = getattr(self, name)
            _check(name, value, 0 <= value < math.inf, "a finite number of at least 0")
        for name in ("error_tolerance", "median_tolerance", "tail_tolerance", "disagreement_limit"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "a share from 0 to 1")
        _check("max_s", self.max_s, self.max_s >= self.min_s, f"at least min_s, {self.min_s:g}")
        _check("slow_factor", self.slow_factor, 1 <= self.slow_factor < math.inf, "at least 1")
        _check("slo_s", self.slo_s, self.slo_s is None or self.slo_s > 0, "seconds above 0, or none")


class RolloutPolicy:
    """Watches one new version beside the old one and decides by itself; a final decision stays."""

    def __init__(self, settings: RolloutSettings | None, now_s: float) -> None:
        self.settings = settings or RolloutSettings()
        self.stage = Stage.LOADING
        self._since_s = now_s  # when this stage began
        self._final: Promote | RollBack | None = None  # set exactly in the two final stages
        self._seen = {Version.STABLE: _Record(), Version.CANARY: _Record()}
        self._compared = 0
        self._disagreed = 0

    def routes_to_canary(self, request_key: int) -> bool:
        """Whether the new version answers this request; the same key always goes the same way in a stage."""
        match self.stage:
            case Stage.LOADING | Stage.ROLLED_BACK:
                return False
            case Stage.CANARY:
                return falls_in_share(request_key, self.settings.share)
            case Stage.PROMOTED:
                return True
            case _:
                assert_never(self.stage)

    def observe(self, event: Evidence, now_s: float) -> None:
        """Take in one piece of evidence; a crash of the new version ends the rollout here."""
        if self._final is not None:
            return
        match event:
            case Warmed():
                if self.stage is Stage.LOADING:
                    self.stage, self._since_s = Stage.CANARY, now_s
            case VersionAnswered():
                self._seen[event.version].answered(event.latency_s, event.failed)
            case Compared():
                self._compared += event.rows
                self._disagreed += event.disagreed
            case Crashed():
                if event.version is Version.CANARY:
                    self._end(RollBack(f"the new version crashed: {event.why}", self.figures()))
            case _:
                assert_never(event)

    def decide(self, now_s: float) -> RolloutDecision:
        """Keep, promote or roll back now."""
        if self._final is not None:
            return self._final
        decision = self._judge_loading(now_s) if self.stage is Stage.LOADING else self._judge_canary(now_s)
        if not isinstance(decision, Keep):
            self._end(decision)
        return decision

    def figures(self) -> tuple[Comparison, ...]:
        """The comparisons so far: failures, slow answers and disagreement."""
        stable, canary = self._seen[Version.STABLE], self._seen[Version.CANARY]
        tolerance = self.settings.error_tolerance
        figures = [self._compare("failed", canary.failures, stable.failures, tolerance)]
        for name, bucket, tolerance in self._slow_limits(stable):
            figures.append(self._compare(name, canary.slower_than(bucket), stable.slower_than(bucket), tolerance))
        if self.settings.min_compared:
            limit, counts = self.settings.disagreement_limit, (self._disagreed, self._compared)
            figures.append(self._figure("disagreed", counts, breach_above=limit, promote_below=limit))
        return tuple(figures)

    def _slow_limits(self, stable: _Record) -> list[tuple[str, int, float]]:
        limits: list[tuple[str, int, float]] = []
        slack = math.ceil(math.log2(self.settings.slow_factor) * _BUCKETS_PER_OCTAVE)
        tolerances = ((0.5, self.settings.median_tolerance), (0.99, self.settings.tail_tolerance))
        for quantile, tolerance in tolerances:
            bucket = stable.quantile_bucket(quantile) + slack
            limits.append((f"slower than the old p{quantile * 100:g}", bucket, tolerance))
        if self.settings.slo_s is not None:
            limits.append(("slower than the SLO", _bucket(self.settings.slo_s), self.settings.tail_tolerance))
        return limits

    def _compare(self, name: str, canary: tuple[int, int], stable: tuple[int, int], tolerance: float) -> Comparison:
        """The canary's share against the stable one's at the same limit, where like versions are alike."""
        worst = wilson_bounds(*stable, self.settings.breach_z)[1] + tolerance
        usual = stable[0] / stable[1] + tolerance if stable[1] else tolerance
        return self._figure(name, canary, breach_above=worst, promote_below=usual)

    def _figure(self, name: str, canary: tuple[int, int], *, breach_above: float, promote_below: float) -> Comparison:
        low = wilson_bounds(*canary, self.settings.breach_z)[0]
        high = wilson_bounds(*canary, self.settings.promote_z)[1]
        if canary[1] < self.settings.breach_requests:
            low = 0.0
        return Comparison(name, *canary, low, high, breach_above, promote_below)

    def _judge_loading(self, now_s: float) -> Keep | RollBack:
        if now_s - self._since_s > self.settings.max_loading_s:
            return RollBack(f"the new version was not warm after {self.settings.max_loading_s:g} s")
        return Keep("the new version is loading")

    def _judge_canary(self, now_s: float) -> RolloutDecision:
        figures = self.figures()
        for figure in figures:
            if figure.is_breach:
                return RollBack(f"breach: {figure}", figures)
        missing = self._missing_evidence(now_s)
        doubtful = [str(figure) for figure in figures if not figure.is_good]
        if not missing and not doubtful:
            return Promote(f"no worse than the old version in {len(figures)} comparisons", figures)
        why = missing or f"not yet shown to be as good: {'; '.join(doubtful)}"
        if now_s - self._since_s >= self.settings.max_s:
            return RollBack(f"inconclusive after {self.settings.max_s:g} s: {why}", figures)
        return Keep(why, figures)

    def _missing_evidence(self, now_s: float) -> str:
        for version, record in self._seen.items():
            if record.requests < self.settings.min_requests:
                return f"{record.requests} of {self.settings.min_requests} requests to the {version} version"
        if self._compared < self.settings.min_compared:
            return f"{self._compared} of {self.settings.min_compared} mirrored rows compared"
        age_s = now_s - self._since_s
        return f"{age_s:g} of {self.settings.min_s:g} s watched" if age_s < self.settings.min_s else ""

    def _end(self, decision: Promote | RollBack) -> None:
        self._final = decision
        self.stage = Stage.PROMOTED if isinstance(decision, Promote) else Stage.ROLLED_BACK


class _Record:
    """What one version did: counts and a log-bucket histogram, of fixed size."""

    def __init__(self) -> None:
        self.requests = 0
        self._failed = 0
        self._buckets = [0] * _BUCKETS  # of answers only: failing fast is not being fast

    @property
    def failures(self) -> tuple[int, int]:
        return self._failed, self.requests

    def answered(self, latency_s: float, failed: bool) -> None:
        self.requests += 1
        if failed:
            self._failed += 1
        else:
            self._buckets[_bucket(latency_s)] += 1

    def slower_than(self, bucket: int) -> tuple[int, int]:
        """Answers past this bucket, of all answers."""
        return sum(self._buckets[bucket + 1 :]), self.requests - self._failed

    def quantile_bucket(self, quantile: float) -> int:
        rank, seen = quantile * (self.requests - self._failed), 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= rank:
                return bucket
        return _BUCKETS - 1


def falls_in_share(request_key: int, share: float) -> bool:
    """Whether this key belongs to the share; a key in a share belongs to every larger one too."""
    # splitmix64's finaliser: neighbouring keys land far apart
    mixed = (request_key + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) < share * (_MASK + 1)


def wilson_bounds(seen: int, of: int, z: float) -> tuple[float, float]:
    """The Wilson score interval of a share; (0, 1) with no observations."""
    if of == 0:
        return 0.0, 1.0
    rate, weight = seen / of, z * z / of
    middle = rate + weight / 2
    reach = math.sqrt(weight * (rate * (1 - rate) + weight / 4))
    return max(0.0, (middle - reach) / (1 + weight)), min(1.0, (middle + reach) / (1 + weight))


def _bucket(latency_s: float) -> int:
    if latency_s <= _SHORTEST_S:
        return 0
    return min(_BUCKETS - 1, int(math.log2(min(latency_s, 1e6) / _SHORTEST_S) * _BUCKETS_PER_OCTAVE))


def _check(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
