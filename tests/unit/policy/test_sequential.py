from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoshift.policy.sequential import (
    bet_on_difference,
    bet_on_failure,
    log_above,
    log_below,
    lower_bound,
    new_difference_bets,
    new_failure_bets,
    requests_until_below,
    upper_bound,
    won,
)

UNTIMED = settings(deadline=None)
shares = st.floats(0.001, 0.9)


def after_failures(failures: list[bool], share: float) -> list[float]:
    bets = new_failure_bets()
    for by_candidate in failures:
        bet_on_failure(bets, by_candidate, share)
    return bets


def reserve(bets: list[float]) -> float:
    """What is not staked: it was 0.1 at first."""
    return 1.0 / (bets[0] + 10)


@UNTIMED
@given(st.lists(st.booleans(), max_size=30), shares)
def test_a_bet_on_failures_of_like_versions_neither_wins_nor_loses_on_average(seen: list[bool], share: float) -> None:
    before = after_failures(seen, share)
    outcomes = {candidate: after_failures([*seen, candidate], share) for candidate in (True, False)}
    mean = share * won(outcomes[True]) + (1 - share) * won(outcomes[False]) + reserve(outcomes[True])
    assert mean == pytest.approx(won(before) + reserve(before))


@UNTIMED
@given(shares, st.floats(0.0, 1.0))
def test_a_candidate_that_fails_less_is_bet_on_at_a_loss(share: float, less: float) -> None:
    fair, other = (chance * won(after_failures([True], share)) + (1 - chance) * won(after_failures([False], share))
                   for chance in (share, share * less))  # fmt: skip
    assert other <= fair + 1e-9


@UNTIMED
@given(st.lists(st.sampled_from([-0.2, 0.0, 0.4]), max_size=20), st.floats(0.2, 1.0), st.floats(0.0, 1.0))
def test_a_bet_on_differences_whose_mean_is_not_above_zero_does_not_win_on_average(
    seen: list[float], up: float, most_lost_share: float
) -> None:
    low = -0.2 * most_lost_share - 0.01
    chance = -low / (up - low)  # of the high one: the mean is 0
    totals = list[float]()
    for last in (None, up, low):
        bets = new_difference_bets()
        for each in [*seen, *([] if last is None else [last])]:
            bet_on_difference(bets, each, 1.0)
        totals.append(won(bets) + reserve(bets))
    before, high_total, low_total = totals
    assert chance * high_total + (1 - chance) * low_total == pytest.approx(before)


def test_two_failures_at_a_share_of_one_percent_are_strong_evidence_and_two_at_a_half_are_none() -> None:
    assert won(after_failures([True, True], 0.01)) > 500
    assert won(after_failures([True, True], 0.5)) < 5


def test_a_long_good_time_does_not_hide_a_bad_one_after_it() -> None:
    bets = after_failures([False] * 10_000, 0.25)
    needed = 0
    while won(bets) < 200:
        bet_on_failure(bets, True, 0.25)
        needed += 1
    assert needed < 25


@UNTIMED
@given(st.integers(0, 200), st.integers(0, 2000), st.floats(0.001, 0.2))
def test_the_bounds_hold_the_observed_share(seen: int, more: int, alpha: float) -> None:
    of = seen + more
    low, high = lower_bound(seen, of, alpha), upper_bound(seen, of, alpha)
    assert 0.0 <= low <= high <= 1.0
    if of:
        assert low <= seen / of + 1e-6
        assert high >= seen / of - 1e-6


@UNTIMED
@given(st.integers(0, 50), st.integers(1, 500), st.floats(0.01, 0.98), st.floats(0.001, 0.01))
def test_evidence_grows_with_a_limit_for_below_and_falls_for_above(
    seen: int, more: int, limit: float, step: float
) -> None:
    of = seen + more
    assert log_below(seen, of, limit + step) >= log_below(seen, of, limit)
    assert log_above(seen, of, limit + step) <= log_above(seen, of, limit)


def test_limits_that_say_nothing() -> None:
    assert log_below(0, 10, 1.0) == math.inf
    assert log_below(0, 10, 0.0) == -math.inf
    assert requests_until_below(0, 0, 1.0, 0.05) == 0
    assert requests_until_below(0, 10, 0.0, 0.05) is None


@pytest.mark.parametrize(("seen", "of", "limit"), [(0, 0, 0.2), (0, 30, 0.02), (3, 200, 0.05), (40, 100, 0.5)])
def test_so_many_more_requests_as_foretold_are_enough(seen: int, of: int, limit: float) -> None:
    alpha = 0.05
    missing = requests_until_below(seen, of, limit, alpha)
    assert missing
    later = seen / max(1, of) * missing
    assert log_below(seen + later, of + missing, limit) >= -math.log(alpha) - 0.5
    assert log_below(seen + later / 4, of + missing // 4, limit) < -math.log(alpha)


def test_a_share_above_the_limit_is_not_foretold() -> None:
    assert requests_until_below(50, 100, 0.2, 0.05) is None


@pytest.mark.slow
def test_looks_after_every_request_are_wrong_as_seldom_as_said() -> None:
    rng, wrong, alpha, runs = random.Random(1), 0, 0.1, 400  # noqa: S311
    for _ in range(runs):
        seen = 0
        for of in range(1, 300):
            seen += rng.random() < 0.05
            if log_below(seen, of, 0.05) >= -math.log(alpha) or log_above(seen, of, 0.05) >= -math.log(alpha):
                wrong += 1
                break
    assert wrong / runs <= 2 * alpha
