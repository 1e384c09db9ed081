"""Evidence about a candidate compared with the stable version: counts, and bets that it is worse."""

from __future__ import annotations

import math

from twoshift.policy.rollout_values import (
    Compared,
    Comparison,
    RolloutSettings,
    RolloutState,
    Stage,
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
_WIDEST_MEDIAN = 0.4  # few requests wake a version each time, so most of its answers are a little slower
_REMEMBERED = 1000  # of the candidate's requests, about, say which share it has
_STABLE_ALPHA = 0.2  # of step_alpha, for the stable version's share; the rest is for the candidate's
_QUANTILES = (0.5, 0.99)
_SLOW_NAMES = ("slower than the stable p50", "slower than the stable p99", "slower than the SLO")


_SHADOW_FAILED, _FAILED, _DISAGREED, _PAIRED = "failed in the shadow", "failed", "disagreed", "slower in the shadow"


class RolloutEvidence:
    """Adds observations to the state of a rollout, and says what they show."""

    def __init__(self, settings: RolloutSettings, state: RolloutState) -> None:
        self._settings = settings
        self._steps = settings.steps
        self._state = state
        self._weights = _weights(settings)
        if not state.bets:
            state.stable_histogram, state.candidate_histogram = [0] * _BUCKETS, [0] * _BUCKETS
            failures = (_SHADOW_FAILED, _FAILED)
            state.bets = {
                name: new_failure_bets() if name in failures else new_difference_bets() for name in self._weights
            }
        self._stable_answers = sum(state.stable_histogram)
        self._use_limits()

    def begin(self, step: int, now_s: float) -> None:
        """The shadow (-1) or a share begins: steps are judged by what is seen at this share, bets go on."""
        state = self._state
        state.step, state.since_s, state.slot_s = step, now_s, now_s
        state.stable, state.candidate, state.exposed = [0] * 6, [0] * 6, [0.0, 0.0]
        state.slot, state.limits_s = [[0] * 4, [0] * 4], []
        self._learn_limits()

    def answered(self, by_candidate: bool, latency_s: float, failed: bool, now_s: float) -> None:
        """A live request was answered; the candidate's answers count while it has a share of the requests."""
        state = self._state
        stage = state.stage
        if by_candidate and stage is not Stage.LADDER:
            return
        if not failed:
            (state.candidate_histogram if by_candidate else state.stable_histogram)[_bucket(latency_s)] += 1
            self._stable_answers += not by_candidate
        if stage is Stage.LOADING:
            return
        counts = state.candidate if by_candidate else state.stable
        counts[0] += 1
        counts[1] += failed
        self._expose(by_candidate, failed)
        if stage is Stage.LADDER and not failed:
            self._timed(by_candidate, latency_s, now_s)

    def compared(self, event: Compared, now_s: float) -> None:
        """A copied request; its failure counts in the shadow, where the candidate has no requests of its own."""
        state, totals = self._state, self._state.compared
        if state.stage is Stage.LOADING or not self._settings.shadow:
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
            bet_on_difference(state.bets[_DISAGREED], event.disagreed / event.rows - bound, bound)
            if event.disagreed:
                self._weigh()
        if event.candidate_s is not None and event.stable_s is not None:
            self._paired(event.candidate_s > event.stable_s * self._settings.slow_factor, now_s)

    def figures(self) -> tuple[Comparison, ...]:
        """All criteria by which the versions are compared now."""
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
        """The share after the next step; 1 means promoted."""
        later = self._steps[self._state.step + 1 :]
        return later[0] if later else 1.0

    def knows_latency(self) -> bool:
        """Whether the stable version has answered often enough to be compared with."""
        return bool(self._limits)

    def percentiles_s(self) -> dict[str, dict[str, float | None]]:
        """p50 and p99 of both versions, for display."""
        found = {"stable": self._state.stable_histogram, "candidate": self._state.candidate_histogram}
        return {
            name: {f"p{quantile * 100:g}": _quantile_s(counts, quantile) for quantile in _QUANTILES}
            for name, counts in found.items()
        }

    def _expose(self, by_candidate: bool, failed: bool) -> None:
        """Where the versions are alike, a failure is the candidate's as often as a request is."""
        exposed, step = self._state.exposed, self._state.step
        designed = self._steps[step] if step >= 0 else 0.5
        if failed:
            lately = (exposed[1] + 1) / (exposed[0] + exposed[1] + 1 / designed)
            bets = self._state.bets[_FAILED if step >= 0 else _SHADOW_FAILED]
            bet_on_failure(bets, by_candidate, max(designed, lately) if step >= 0 else lately)
            self._weigh()
        exposed[by_candidate] += 1
        if exposed[0] + exposed[1] > _REMEMBERED / designed:
            self._state.exposed = [each / 2 for each in exposed]

    def _timed(self, by_candidate: bool, latency_s: float, now_s: float) -> None:
        state = self._state
        if not self._limits:
            self._learn_limits()
            return
        if now_s - state.slot_s >= _SLOT_S and state.slot[0][0] and state.slot[1][0]:
            self._close_slot(now_s)
        counts, slot = (state.candidate if by_candidate else state.stable), state.slot[by_candidate]
        counts[2] += 1
        slot[0] += 1
        if latency_s > self._least_limits[by_candidate]:
            for index, limits in enumerate(self._limits, start=1):
                if latency_s > limits[by_candidate]:
                    counts[2 + index] += 1
                    slot[index] += 1

    def _close_slot(self, now_s: float) -> None:
        state, tolerance = self._state, self._settings.tail_tolerance
        stable, candidate = state.slot
        for index, accepted in zip(range(len(self._limits)), (0.5, 0.01 + tolerance, tolerance), strict=False):
            usual = max(stable[1 + index] / stable[0], accepted)
            bet_on_difference(state.bets[_SLOW_NAMES[index]], candidate[1 + index] / candidate[0] - usual, 1.0)
        state.slot, state.slot_s = [[0] * 4, [0] * 4], now_s
        self._weigh()

    def _paired(self, slower: bool, now_s: float) -> None:
        state = self._state
        if now_s - state.pair_slot_s >= _SLOT_S:
            timed, slow = state.pair_slot
            if timed:
                bet_on_difference(state.bets[_PAIRED], slow / timed - 0.5, 0.5)
                self._weigh()
            state.pair_slot, state.pair_slot_s = [0, 0], now_s
        state.pair_slot[0] += 1
        state.pair_slot[1] += slower
        state.compared[4] += 1
        state.compared[5] += slower

    def _learn_limits(self) -> None:
        state = self._state
        if self._stable_answers >= _LIMITS_AFTER and not state.limits_s:
            state.limits_s = [_quantile_s(state.stable_histogram, each) or 0.0 for each in _QUANTILES]
        self._use_limits()

    def _use_limits(self) -> None:
        self._limits = self._latency_limits()
        self._least_limits = [min((pair[version] for pair in self._limits), default=0.0) for version in (0, 1)]

    def _latency_limits(self) -> list[tuple[float, float]]:
        """In seconds, for the stable version's answers and for the candidate's."""
        limits = [(limit_s, limit_s * self._settings.slow_factor) for limit_s in self._state.limits_s]
        slo_s = self._settings.slo_s
        return [*limits, (slo_s, slo_s)] if limits and slo_s is not None else limits

    def total(self) -> float:
        """Evidence that the candidate is worse, in any respect."""
        return sum(self._won(name) for name in self._weights)

    def _weigh(self) -> None:
        """What was enough once is enough, whatever follows before somebody looks."""
        if not self._state.crossed and (total := self.total()) * self._settings.alpha >= 1:
            self._state.crossed = total

    def _won(self, name: str) -> float:
        return self._weights[name] * won(self._state.bets[name])

    def _failures(self) -> Comparison:
        evidence = sum(self._won(name) for name in (_SHADOW_FAILED, _FAILED) if name in self._weights)
        return self._compare(_FAILED, (1, 0), evidence, self._settings.error_tolerance)

    def _slow(self, index: int) -> Comparison:
        name = _SLOW_NAMES[index]
        settings = self._settings
        tolerance, widest = (
            (settings.tail_tolerance, _WIDEST_STEP) if index else (settings.median_tolerance, _WIDEST_MEDIAN)
        )
        return self._compare(name, (3 + index, 2), self._won(name), tolerance, widest)

    def _compare(
        self, name: str, which: tuple[int, int], evidence: float, tolerance: float, widest: float = _WIDEST_STEP
    ) -> Comparison:
        """The candidate's share may be so much larger that, at the next share, of all requests the tolerance is hit."""
        seen, of = (self._state.candidate[at] for at in which)
        stable_seen, stable_of = (self._state.stable[at] for at in which)
        usual = lower_bound(stable_seen, stable_of, _STABLE_ALPHA * self._settings.step_alpha)
        accepted = usual + min(tolerance / self.next_share(), widest)
        missing = self._missing(seen, of, accepted)
        return Comparison(name, seen, of, stable_seen, stable_of, evidence, accepted, missing)

    def _missing(self, seen: float, of: int, accepted: float) -> int | None:
        return requests_until_below(seen, of, accepted, (1 - _STABLE_ALPHA) * self._settings.step_alpha)

    def _disagreement(self) -> Comparison:
        requests, failed, rows, disagreed, _, _ = self._state.compared
        bound = self._settings.disagreement_bound
        if bound is None:
            return Comparison(_DISAGREED, disagreed, rows, 0, 0)
        # rows of one request are alike: requests are what counts
        of = requests - failed
        missing = self._missing(disagreed / max(1, rows) * of, of, bound)
        return Comparison(_DISAGREED, disagreed, rows, 0, 0, self._won(_DISAGREED), bound, missing)

    def _pairs(self) -> Comparison:
        timed, slower = self._state.compared[4:]
        accepted = min(1.0, 0.5 + self._settings.median_tolerance)
        missing = self._missing(slower, timed, accepted)
        return Comparison(_PAIRED, slower, timed, 0, 0, self._won(_PAIRED), accepted, missing)


def _weights(settings: RolloutSettings) -> dict[str, float]:
    """How the e-values are added up; the weights' sum is 1, so the sum is an e-value, too: one alpha for all."""
    limits = _SLOW_NAMES[: 2 if settings.slo_s is None else 3]
    parts = {_FAILED: 10.0} | dict.fromkeys(limits, 5.0 / len(limits))
    if settings.shadow:
        parts |= {_SHADOW_FAILED: 1.0, _PAIRED: 2.0}
        parts |= {} if settings.disagreement_bound is None else {_DISAGREED: 2.0}
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def _bucket(latency_s: float) -> int:
    """Histogram bucket: sixteen per octave, evenly spaced."""
    mantissa, exponent = math.frexp(latency_s / _SHORTEST_S)
    if exponent < 1:
        return 0
    return min(_BUCKETS - 1, (exponent - 1) * _BUCKETS_PER_OCTAVE + int((mantissa - 0.5) * 2 * _BUCKETS_PER_OCTAVE))


def _quantile_s(counts: list[int], quantile: float) -> float | None:
    """Upper end of the bucket that contains the quantile; None if nothing was counted."""
    rank, seen = quantile * sum(counts), 0
    for bucket, count in enumerate(counts, start=1):
        seen += count
        if seen >= rank > 0:
            octave, part = divmod(bucket, _BUCKETS_PER_OCTAVE)
            return _SHORTEST_S * 2**octave * (1 + part / _BUCKETS_PER_OCTAVE)
    return None
