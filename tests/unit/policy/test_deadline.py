from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.deadline import DeadlineLimits, DeadlinePolicy, Outlook, Verdict

DURATIONS = st.lists(st.floats(0.5, 500.0), min_size=1, max_size=40)


def taught(
    durations_s: list[float], deadline_s: float = 1000.0, limits: DeadlineLimits | None = None
) -> DeadlinePolicy:
    """A policy that saw shards of 100 items take these seconds, all at 0 s."""
    policy = DeadlinePolicy(deadline_s, None, limits)
    for seconds in durations_s:
        policy.observed(100, seconds, 0.0)
    return policy


def width_s(outlook: Outlook) -> float:
    assert outlook.p10_s is not None
    assert outlook.p90_s is not None
    return outlook.p90_s - outlook.p10_s


def eta_s(outlook: Outlook) -> float:
    assert outlook.eta_s is not None
    return outlook.eta_s


def chance(outlook: Outlook) -> float:
    assert outlook.chance is not None
    return outlook.chance


def test_with_nothing_observed_and_nothing_planned_nothing_is_claimed() -> None:
    outlook = DeadlinePolicy(100.0).outlook(1000, 4, 0.0)
    assert outlook == Outlook(Verdict.UNKNOWN, None, None, None, None, None, None)


def test_before_any_observation_the_planned_rate_speaks_with_a_wide_margin() -> None:
    policy = DeadlinePolicy(1000.0, planned_items_per_s=10.0)
    outlook = policy.outlook(1000, 4, 50.0)
    assert outlook.eta_s == pytest.approx(50.0 + 25.0)
    assert outlook.laxity_s == pytest.approx(1000.0 - 75.0)
    assert width_s(outlook) > 0.8 * 25.0


@pytest.mark.parametrize("is_seen", [False, True])
def test_what_comes_after_the_last_item_delays_the_end_and_no_worker_shortens_it(is_seen: bool) -> None:
    usual, later = (DeadlinePolicy(100.0, 10.0, after_s=each) for each in (0.0, 60.0))
    for policy in (usual, later):
        for _ in range(50 * is_seen):
            policy.observed(100, 10.0, 0.0)
    for workers in (4, 40):
        before, now = (policy.outlook(2000, workers, 0.0) for policy in (usual, later))
        assert before.eta_s is not None
        assert before.laxity_s is not None
        assert now.eta_s == pytest.approx(before.eta_s + 60.0)
        assert now.laxity_s == pytest.approx(before.laxity_s - 60.0)
    needed = usual.outlook(2000, 4, 60.0).workers_needed
    assert later.outlook(2000, 4, 0.0).workers_needed == needed
    assert later.outlook(0, 4, 50.0).eta_s == 50.0


def test_observations_replace_the_plan() -> None:
    policy = DeadlinePolicy(1000.0, planned_items_per_s=1000.0)
    for _ in range(100):
        policy.observed(100, 10.0, 0.0)
    assert policy.outlook(100_000, 10, 0.0).eta_s == pytest.approx(1000.0, rel=0.05)


def test_more_evidence_narrows_the_forecast() -> None:
    widths_s = [width_s(taught([10.0] * n).outlook(100_000, 10, 0.0)) for n in (1, 10, 100, 1000)]
    assert widths_s == sorted(widths_s, reverse=True)
    assert widths_s[0] > 2 * widths_s[-1]


def test_one_shard_is_not_enough_to_be_sure_that_a_close_window_is_missed_or_made() -> None:
    for deadline_s in (900.0, 1100.0):
        assert taught([10.0], deadline_s).outlook(100_000, 10, 0.0).verdict is Verdict.AT_RISK
    assert taught([10.0] * 5000, 1200.0).outlook(100_000, 10, 0.0).verdict is Verdict.ON_TRACK


def test_a_job_that_cannot_make_it_says_so_after_a_hundredth_of_its_work() -> None:
    policy = DeadlinePolicy(3600.0, planned_items_per_s=100.0)
    for _ in range(100):
        policy.observed(1000, 20.0, 20.0)  # half the planned rate
    outlook = policy.outlook(3_600_000 * 0.99, 10, 20.0)
    assert outlook.verdict is Verdict.WILL_MISS
    assert outlook.laxity_s is not None
    assert outlook.laxity_s < -3000
    assert outlook.workers_needed is not None
    assert 19 <= outlook.workers_needed <= 25


def test_the_end_is_that_of_the_slowest_shard() -> None:
    calm, rough = [10.0] * 1000, [9.0] * 980 + [59.0] * 20  # the same mean
    assert sum(calm) == sum(rough)
    gap_s = eta_s(taught(rough).outlook(100_000, 100, 0.0)) - eta_s(taught(calm).outlook(100_000, 100, 0.0))
    assert 40.0 < gap_s < 60.0


def test_speculation_bounds_the_slowest_shard() -> None:
    rough = [9.0] * 980 + [590.0] * 20
    bounded = taught(rough, limits=DeadlineLimits(slowest_factor=3.0)).outlook(100_000, 100, 0.0)
    assert eta_s(taught(rough).outlook(100_000, 100, 0.0)) - eta_s(bounded) > 500


def test_lost_time_slows_the_fleet_down() -> None:
    policy = taught([10.0] * 100)
    before_s = eta_s(policy.outlook(100_000, 10, 0.0))
    policy.lost(1000.0, 0.0)  # as much again
    assert eta_s(policy.outlook(100_000, 10, 0.0)) == pytest.approx(2 * before_s, rel=0.02)


def test_a_fleet_that_got_slower_is_believed_after_a_few_half_lives() -> None:
    policy = DeadlinePolicy(1e9, None, DeadlineLimits(half_life_s=100.0))
    for second in range(1000):
        policy.observed(100, 10.0, float(second))
    for second in range(1000, 1500):
        policy.observed(100, 20.0, float(second))
    assert policy.outlook(100_000, 10, 1500.0).eta_s == pytest.approx(1500.0 + 2000.0, rel=0.05)


def test_memory_stays_bounded_and_numbers_finite_over_years() -> None:
    policy = DeadlinePolicy(1e12, None, DeadlineLimits(half_life_s=1.0))
    for year in range(50):
        policy.observed(100, 10.0, year * 3.15e7)
    policy.observed(100, 10.0, 0.0)  # a clock that went back
    assert policy.outlook(1000, 1, 1.6e9).eta_s == pytest.approx(1.6e9 + 100.0, abs=100.0)


def test_what_was_seen_before_a_long_pause_no_longer_counts() -> None:
    policy = DeadlinePolicy(1e12, None, DeadlineLimits(half_life_s=60.0))
    for _ in range(1000):
        policy.observed(100, 10.0, 0.0)
    policy.observed(100, 20.0, 86_400.0)
    alone = DeadlinePolicy(1e12)
    alone.observed(100, 20.0, 86_400.0)
    resumed = policy.outlook(100_000, 10, 86_400.0)
    assert resumed.eta_s == pytest.approx(eta_s(alone.outlook(100_000, 10, 86_400.0)), rel=1e-6)


def test_most_ends_lie_between_the_tenth_and_the_ninetieth_percentile_but_not_all() -> None:
    draw = random.Random(5)  # noqa: S311
    inside = 0
    for _ in range(100):
        policy = taught([draw.lognormvariate(2.0, 0.4) for _ in range(60)])
        outlook = policy.outlook(20_000, 10, 0.0)
        ends_s = [0.0] * 10
        for _ in range(200):
            first = min(range(10), key=ends_s.__getitem__)
            ends_s[first] += draw.lognormvariate(2.0, 0.4)
        assert outlook.p90_s is not None
        assert outlook.p10_s is not None
        inside += outlook.p10_s <= max(ends_s) <= outlook.p90_s
    assert 70 <= inside <= 97


def test_no_workers_means_no_end_but_says_how_many_it_takes() -> None:
    outlook = taught([10.0] * 100).outlook(10_000, 0, 0.0)
    assert (outlook.verdict, outlook.eta_s, outlook.chance) == (Verdict.WILL_MISS, None, 0.0)
    assert outlook.workers_needed is not None


def test_a_window_shorter_than_a_shard_needs_more_workers_than_there_are() -> None:
    assert taught([10.0] * 100, deadline_s=5.0).outlook(10_000, 10, 0.0).workers_needed is None


def test_without_a_deadline_every_job_is_on_track() -> None:
    outlook = taught([10.0] * 10, deadline_s=math.inf).outlook(10_000, 1, 0.0)
    assert (outlook.verdict, outlook.chance, outlook.workers_needed) == (Verdict.ON_TRACK, 1.0, 1)


def test_a_finished_job_is_done_in_time_or_not() -> None:
    assert taught([1.0]).outlook(0, 0, 999.0).chance == 1.0
    late = taught([1.0]).outlook(0, 0, 1001.0)
    assert (late.verdict, late.chance, late.laxity_s) == (Verdict.DONE, 0.0, -1.0)


def test_past_its_deadline_a_job_has_no_chance() -> None:
    outlook = taught([10.0]).outlook(100, 10, 1000.0)
    assert (outlook.verdict, outlook.chance, outlook.workers_needed) == (Verdict.WILL_MISS, 0.0, None)


@given(DURATIONS, st.integers(1, 10**6), st.integers(1, 500), st.floats(0, 2000))
def test_quantiles_are_ordered_and_the_chance_agrees_with_them(
    durations_s: list[float], items: int, workers: int, now_s: float
) -> None:
    outlook = taught(durations_s).outlook(items, workers, now_s)
    assert outlook.p10_s is not None
    assert outlook.p90_s is not None
    assert now_s < outlook.p10_s <= eta_s(outlook) <= outlook.p90_s
    for share, at_s in ((0.1, outlook.p10_s), (0.5, eta_s(outlook)), (0.9, outlook.p90_s)):
        if at_s <= 1000.0:
            assert chance(outlook) >= share - 1e-6
        else:
            assert chance(outlook) <= share + 1e-6


@given(DURATIONS, st.integers(1, 10**6), st.integers(1, 100))
def test_more_work_never_helps_and_more_time_never_hurts(durations_s: list[float], items: int, workers: int) -> None:
    policy, later = taught(durations_s), taught(durations_s, deadline_s=1500.0)
    outlook = policy.outlook(items, workers, 0.0)
    assert chance(later.outlook(items, workers, 0.0)) >= chance(outlook)
    assert eta_s(policy.outlook(items * 4 + 400 * workers, workers, 0.0)) >= eta_s(outlook)


@given(DURATIONS, st.integers(1, 10**6))
def test_the_workers_it_asks_for_are_enough_and_one_fewer_is_not(durations_s: list[float], items: int) -> None:
    policy = taught(durations_s)
    needed = policy.outlook(items, 1, 0.0).workers_needed
    if needed is None:
        return
    assert chance(policy.outlook(items, needed, 0.0)) >= 0.9 - 1e-6
    if needed > 1:
        assert chance(policy.outlook(items, needed - 1, 0.0)) < 0.9 + 1e-6


def test_bad_input_is_refused_by_name() -> None:
    policy = DeadlinePolicy(10.0)
    for field, call in (
        ("items", lambda: policy.observed(0, 1.0, 0.0)),
        ("seconds", lambda: policy.observed(1, math.nan, 0.0)),
        ("seconds", lambda: policy.lost(-1.0, 0.0)),
        ("remaining_items", lambda: policy.outlook(-1, 1, 0.0)),
        ("workers", lambda: policy.outlook(1, -1, 0.0)),
        ("planned_items_per_s", lambda: DeadlinePolicy(1.0, 0.0)),
        ("deadline_s", lambda: DeadlinePolicy(math.nan)),
        ("target_chance", lambda: DeadlineLimits(target_chance=1.0)),
        ("half_life_s", lambda: DeadlineLimits(half_life_s=0.0)),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.field == field
