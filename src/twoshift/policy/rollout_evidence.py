"""What is known of a candidate beside the stable version: counts, and bets that it is worse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.policy.rollout_values import (
    Compared,
    Comparison,
    RolloutSettings,
    RolloutState,
    Stage,
    Version,
    VersionAnswered,
)
from twoshift.policy.sequential import (
    bet_on_difference,
    bet_on_failure,
    lower_bound,
    new_difference_bets,
    new_failure_bets,
    requests_until_below,
    won,
)

__all__ = ["RolloutEvidence"]

_BUCKETS_PER_OCTAVE = 16
_SHORTEST_S = 1e-5
_BUCKETS = 27 * _BUCKETS_PER_OCTAVE  # 10 us to over 20 minutes
_SLOT_S = 1.0  # answers of one second may share their cause, so they are one observation of latency
_LIMITS_AFTER = 100  # answers of the stable version, before its percentiles are used
_WIDEST_STEP = 0.2  # no step is taken by less evidence than this tolerance needs
_REMEMBERED = 1000  # of the candidate's requests, about, say which share it has
_STABLE_ALPHA = 0.2  # of step_alpha, for the stable version's share; the rest is for the candidate's
_QUANTILES = (0.5, 0.99)
_SLOW_NAMES = ("slower than the stable p50", "slower than the stable p99", "slower than the SLO")


@dataclass(frozen=True, slots=True)
class _Weights:
    """How the bets' wealth is added up; the weights' sum is at most 1, so the sum is a bet like any other."""

    failures: tuple[float, ...]  # in the shadow, then at each share
    slow: float  # each limit at each share
    disagreed: float
    pairs: float

    @classmethod
    def of(cls, settings: RolloutSettings) -> _Weights:
        shares = len(settings.steps)
        # the first callers are protected best: most of the failures' weight is for the first share
        shadow = 0.1 if settings.shadow else 0.0
        first = 0.6 - shadow if shares == 1 else 0.4
        later = (0.6 - shadow - first) / max(1, shares - 1)
        failures = (shadow, *([first] if shares else []), *([later] * (shares - 1)))
        limits = 2 if settings.slo_s is None else 3
        return cls(failures, 0.2 / (limits * max(1, shares)), 0.1, 0.1)


class RolloutEvidence:
    """Adds what is observed to a rollout's state, and says what it shows."""

    def __init__(self, settings: RolloutSettings, state: RolloutState) -> None:
        self._settings = settings
        self._state = state
        self._weights = _Weights.of(settings)
        if not state.stable_histogram:
            state.stable_histogram, state.candidate_histogram = [0] * _BUCKETS, [0] * _BUCKETS
            state.disagreed_bets, state.pair_bets = new_difference_bets(), new_difference_bets()
            self._new_bets()
        self._stable_answers = sum(state.stable_histogram)
        self._limits = self._latency_limits()
        self.total = self._total()  # that the candidate is worse, in any respect

    def begin(self, step: int, now_s: float) -> None:
        """Of the shadow (-1) or of a share; the bets begin anew, and what they won before stays in the sum."""
        state = self._state
        state.spent += self._live_evidence()
        state.step, state.since_s, state.slot_s = step, now_s, now_s
        state.stable, state.candidate, state.exposed = [0] * 6, [0] * 6, [0.0, 0.0]
        state.slot, state.limits_s = [[0] * 4, [0] * 4], []
        self._new_bets()
        self._learn_limits()
        self.total = self._total()

    def answered(self, event: VersionAnswered, now_s: float) -> None:
        """A live request; the candidate's count while it has a share of them."""
        state, is_candidate = self._state, event.version is Version.CANDIDATE
        if is_candidate and state.stage is not Stage.LADDER:
            return
        if not event.failed:
            (state.candidate_histogram if is_candidate else state.stable_histogram)[_bucket(event.latency_s)] += 1
            self._stable_answers += not is_candidate
        if state.stage is Stage.LOADING:
            return
        counts = state.candidate if is_candidate else state.stable
        counts[0] += 1
        counts[1] += event.failed
        self._expose(is_candidate, event.failed)
        if state.stage is Stage.LADDER and not event.failed:
            self._timed(is_candidate, event.latency_s, now_s)

    def compared(self, event: Compared, now_s: float) -> None:
        """A copied request; its failure counts in the shadow, where the candidate has no requests of its own."""
        state, totals = self._state, self._state.compared
        if state.stage is Stage.LOADING:
            return
        totals[0] += 1
        totals[1] += event.failed
        if state.stage is Stage.SHADOW:
            state.candidate[0] += 1
            state.candidate[1] += event.failed
            self._expose(True, event.failed)
        if event.failed:
            return
        totals[2] += event.rows
        totals[3] += event.disagreed
        bound = self._settings.disagreement_bound
        if bound is not None:
            bet_on_difference(state.disagreed_bets, event.disagreed / event.rows - bound, bound)
            self.total = self._total()
        if event.candidate_s is not None and event.stable_s is not None:
            self._paired(event.candidate_s > event.stable_s * self._settings.slow_factor, now_s)

    def figures(self) -> tuple[Comparison, ...]:
        """All respects in which the versions are compared now."""
        if not self._state.warm:
            return ()
        found = [self._failures()]
        if self._state.step >= 0:
            found += [self._slow(index) for index in range(len(self._limits))]
        if self._state.compared[0]:
            found.append(self._disagreement())
        if self._state.compared[4]:
            found.append(self._pairs())
        return tuple(found)

    def next_share(self) -> float:
        """Where the next step leads; 1: it is promoted."""
        later = self._settings.steps[self._state.step + 1 :]
        return later[0] if later else 1.0

    def knows_latency(self) -> bool:
        """Whether the stable version has answered often enough to be compared with."""
        return bool(self._limits)

    def percentiles_s(self) -> dict[str, dict[str, float | None]]:
        """The p50 and p99 of both, for people."""
        found = {"stable": self._state.stable_histogram, "candidate": self._state.candidate_histogram}
        return {
            name: {f"p{quantile * 100:g}": _quantile_s(counts, quantile) for quantile in _QUANTILES}
            for name, counts in found.items()
        }

    def _new_bets(self) -> None:
        self._state.failure_bets = new_failure_bets()
        self._state.slow_bets = [new_difference_bets() for _ in _SLOW_NAMES]

    def _expose(self, is_candidate: bool, failed: bool) -> None:
        """Where the versions are alike, a failure is the candidate's as often as a request is."""
        state = self._state
        stable, candidate = state.exposed
        designed = self._settings.steps[state.step] if state.step >= 0 else 0.5
        if failed:
            lately = (candidate + 1) / (stable + candidate + 1 / designed)
            share = max(designed, lately) if state.step >= 0 else lately
            bet_on_failure(state.failure_bets, is_candidate, share)
            self.total = self._total()
        state.exposed[is_candidate] += 1
        if stable + candidate > _REMEMBERED / designed:
            state.exposed = [each / 2 for each in state.exposed]

    def _timed(self, is_candidate: bool, latency_s: float, now_s: float) -> None:
        state = self._state
        if not self._limits:
            self._learn_limits()
            return
        if now_s - state.slot_s >= _SLOT_S and state.slot[0][0] and state.slot[1][0]:
            self._close_slot(now_s)
        counts, slot = (state.candidate if is_candidate else state.stable), state.slot[is_candidate]
        counts[2] += 1
        slot[0] += 1
        for index, limits in enumerate(self._limits, start=1):
            if latency_s > limits[is_candidate]:
                counts[2 + index] += 1
                slot[index] += 1

    def _close_slot(self, now_s: float) -> None:
        state, tolerance = self._state, self._settings.tail_tolerance
        stable, candidate = state.slot
        for index, accepted in zip(range(len(self._limits)), (0.5, 0.01 + tolerance, tolerance), strict=False):
            usual = max(stable[1 + index] / stable[0], accepted)
            bet_on_difference(state.slow_bets[index], candidate[1 + index] / candidate[0] - usual, 1.0)
        state.slot, state.slot_s = [[0] * 4, [0] * 4], now_s
        self.total = self._total()

    def _paired(self, slower: bool, now_s: float) -> None:
        state = self._state
        if now_s - state.pair_slot_s >= _SLOT_S:
            timed, slow = state.pair_slot
            if timed:
                bet_on_difference(state.pair_bets, slow / timed - 0.5, 0.5)
                self.total = self._total()
            state.pair_slot, state.pair_slot_s = [0, 0], now_s
        state.pair_slot[0] += 1
        state.pair_slot[1] += slower
        state.compared[4] += 1
        state.compared[5] += slower

    def _learn_limits(self) -> None:
        state = self._state
        if self._stable_answers >= _LIMITS_AFTER and not state.limits_s:
            state.limits_s = [_quantile_s(state.stable_histogram, each) or 0.0 for each in _QUANTILES]
        self._limits = self._latency_limits()

    def _latency_limits(self) -> list[tuple[float, float]]:
        """In seconds, for the stable version's answers and for the candidate's."""
        limits = [(limit_s, limit_s * self._settings.slow_factor) for limit_s in self._state.limits_s]
        slo_s = self._settings.slo_s
        return [*limits, (slo_s, slo_s)] if limits and slo_s is not None else limits

    def _total(self) -> float:
        state, weights = self._state, self._weights
        copies = weights.disagreed * won(state.disagreed_bets) + weights.pairs * won(state.pair_bets)
        return state.spent + self._live_evidence() + copies

    def _live_evidence(self) -> float:
        state, weights = self._state, self._weights
        if not state.warm:
            return 0.0
        slow = [weights.slow * won(bets) for bets in state.slow_bets] if state.step >= 0 else []
        return weights.failures[state.step + 1] * won(state.failure_bets) + sum(slow)

    def _failures(self) -> Comparison:
        state = self._state
        evidence = self._weights.failures[state.step + 1] * won(state.failure_bets)
        return self._compare("failed", (1, 0), evidence, self._settings.error_tolerance)

    def _slow(self, index: int) -> Comparison:
        tolerance = self._settings.tail_tolerance if index else self._settings.median_tolerance
        evidence = self._weights.slow * won(self._state.slow_bets[index])
        return self._compare(_SLOW_NAMES[index], (3 + index, 2), evidence, tolerance)

    def _compare(self, name: str, which: tuple[int, int], evidence: float, tolerance: float) -> Comparison:
        """The candidate's share may be so much larger that, at the next share, of all requests the tolerance is hit."""
        seen, of = (self._state.candidate[at] for at in which)
        stable_seen, stable_of = (self._state.stable[at] for at in which)
        usual = lower_bound(stable_seen, stable_of, _STABLE_ALPHA * self._settings.step_alpha)
        accepted = usual + min(tolerance / self.next_share(), _WIDEST_STEP)
        missing = self._missing(seen, of, accepted)
        return Comparison(name, seen, of, stable_seen, stable_of, evidence, accepted, missing)

    def _missing(self, seen: float, of: int, accepted: float) -> int | None:
        return requests_until_below(seen, of, accepted, (1 - _STABLE_ALPHA) * self._settings.step_alpha)

    def _disagreement(self) -> Comparison:
        requests, failed, rows, disagreed, _, _ = self._state.compared
        bound = self._settings.disagreement_bound
        if bound is None:
            return Comparison("disagreed", disagreed, rows, 0, 0)
        # rows of one request are alike: requests are what counts
        of = requests - failed
        missing = self._missing(disagreed / max(1, rows) * of, of, bound)
        evidence = self._weights.disagreed * won(self._state.disagreed_bets)
        return Comparison("disagreed", disagreed, rows, 0, 0, evidence, bound, missing)

    def _pairs(self) -> Comparison:
        timed, slower = self._state.compared[4:]
        accepted = min(1.0, 0.5 + self._settings.median_tolerance)
        evidence = self._weights.pairs * won(self._state.pair_bets)
        missing = self._missing(slower, timed, accepted)
        return Comparison("slower in the shadow", slower, timed, 0, 0, evidence, accepted, missing)


def _bucket(latency_s: float) -> int:
    if latency_s <= _SHORTEST_S:
        return 0
    return min(_BUCKETS - 1, int(math.log2(min(latency_s, 1e6) / _SHORTEST_S) * _BUCKETS_PER_OCTAVE))


def _quantile_s(counts: list[int], quantile: float) -> float | None:
    """The upper end of the bucket that holds it; None where nothing was counted."""
    rank, seen = quantile * sum(counts), 0
    for bucket, count in enumerate(counts, start=1):
        seen += count
        if seen >= rank > 0:
            return _SHORTEST_S * 2 ** (bucket / _BUCKETS_PER_OCTAVE)
    return None
