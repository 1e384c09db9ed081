"""Windows are as long as the objective allows and as the curve pays for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.freshness import Close, Collect, FreshnessPolicy, OpenWindow, WindowCost
from twoshift.policy.window_cost import ArrivalRate, WindowCostLearner

COSTS = st.builds(WindowCost, st.floats(0.001, 5.0), st.floats(1e-6, 0.5))
OBJECTIVES = st.floats(0.1, 3600.0)


@given(OBJECTIVES, COSTS, st.integers(1, 100_000), st.floats(0.0, 1e4), st.floats(0.0, 100.0))
def test_a_window_is_never_kept_open_longer_than_its_oldest_row_can_wait(
    objective_s: float, cost: WindowCost, rows: int, rate: float, waited_s: float
) -> None:
    policy, now_s = FreshnessPolicy(objective_s), 1000.0
    decision = policy.decide(OpenWindow(rows, now_s - waited_s), cost, rate, now_s, now_s)
    if isinstance(decision, Collect):
        assert decision.until_s is not None
        rows_then = rows + rate * (decision.until_s - now_s)
        committed_s = decision.until_s + cost.seconds(rows_then)
        assert committed_s <= now_s - waited_s + objective_s
        assert decision.until_s > now_s


@given(OBJECTIVES, COSTS, st.integers(1, 100_000), st.floats(0.0, 1e4), st.floats(1.0, 10.0))
def test_a_longer_objective_never_closes_a_window_earlier(
    objective_s: float, cost: WindowCost, rows: int, rate: float, times: float
) -> None:
    window, now_s = OpenWindow(rows, 999.0), 1000.0
    short = FreshnessPolicy(objective_s).decide(window, cost, rate, now_s, now_s)
    long = FreshnessPolicy(times * objective_s).decide(window, cost, rate, now_s, now_s)
    if isinstance(short, Collect):
        assert isinstance(long, Collect)
        assert long.until_s is not None
        assert short.until_s is not None
        assert long.until_s >= short.until_s


@given(OBJECTIVES, COSTS)
def test_a_window_is_closed_once_a_longer_one_would_save_nothing(objective_s: float, cost: WindowCost) -> None:
    policy = FreshnessPolicy(objective_s)
    most = policy.most_rows(cost)
    assert isinstance(policy.decide(OpenWindow(most, 1000.0), cost, 1.0, 1000.0, 1000.0), Close)
    assert cost.row_s * most <= max(30.0, objective_s) + cost.row_s  # what a crash may cost
    if most >= cost.paid_rows:
        assert cost.fixed_s / cost.seconds(most) <= 0.0501


def test_an_empty_window_waits_for_rows_however_late_it_is() -> None:
    policy, cost = FreshnessPolicy(1.0), WindowCost(0.1, 0.001)
    assert policy.decide(OpenWindow(0, 0.0), cost, 0.0, 0.0, 1e6) == Collect(None, policy.most_rows(cost))


def test_rows_are_collected_while_the_windows_before_are_in_work() -> None:
    policy, cost, now_s = FreshnessPolicy(1.0), WindowCost(0.1, 0.001), 1000.0
    late = OpenWindow(5, now_s - 60)
    assert isinstance(policy.decide(late, cost, 1.0, now_s, now_s), Close)
    decision = policy.decide(late, cost, 1.0, now_s + 3, now_s)
    assert isinstance(decision, Collect)
    assert decision.until_s == now_s + 3


@given(st.floats(1, 1e9), st.floats(0, 1e5), COSTS)
def test_catching_up_takes_as_long_as_the_curve_says_beside_new_rows(
    backlog: float, rate: float, cost: WindowCost
) -> None:
    policy = FreshnessPolicy(30.0)
    plan = policy.catch_up(backlog, rate, cost)
    if rate >= plan.rows_per_s:
        assert math.isinf(plan.seconds)
    else:
        assert plan.seconds * (plan.rows_per_s - rate) == pytest.approx(backlog)
    assert policy.catch_up(0, rate, cost).seconds == 0


@pytest.mark.parametrize("objective_s", [0.0, -1.0, math.inf, math.nan])
def test_an_objective_that_is_no_duration_is_refused(objective_s: float) -> None:
    with pytest.raises(InvalidInput, match="fresh"):
        FreshnessPolicy(objective_s)


@given(COSTS, st.lists(st.integers(1, 50_000), min_size=40, max_size=60, unique=True))
def test_the_cost_of_windows_is_learned_from_those_committed(cost: WindowCost, sizes: list[int]) -> None:
    learner = WindowCostLearner(WindowCost(0.05, 0.01))
    for rows in sizes:
        learner.observe(rows, cost.seconds(rows))
    usual = sorted(sizes[-20:])[10]
    assert learner.cost.seconds(usual) == pytest.approx(cost.seconds(usual), rel=0.3, abs=0.05)


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1e4)), max_size=50))
def test_no_window_makes_a_cost_that_cannot_be(seen: list[tuple[int, float]]) -> None:
    learner = WindowCostLearner(WindowCost(0.05, 0.01))
    for rows, seconds in seen:
        learner.observe(rows, seconds)
        assert learner.cost.fixed_s >= 0
        assert learner.cost.row_s > 0


def test_the_rate_of_arrivals_follows_them_and_stands_a_clock_that_goes_back() -> None:
    rate = ArrivalRate(10.0)
    for second in range(100):
        rate.saw(5, float(second))
    assert rate.rows_per_s == pytest.approx(5.0, rel=0.05)
    rate.saw(5, 0.0)
    assert rate.rows_per_s == pytest.approx(5.5, rel=0.05)
    for second in range(99, 200):
        rate.saw(0, float(second))
    assert rate.rows_per_s < 0.1
