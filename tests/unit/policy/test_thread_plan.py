from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.threads import ThreadPlan, ThreadStep, choose_threads, thread_candidates

SIZES = [2**n for n in range(11)]
Times = dict[ThreadStep, list[float]]
times = st.dictionaries(
    st.builds(ThreadStep, st.sampled_from(SIZES), st.sampled_from([1, 4, 16])),
    st.lists(st.floats(1e-6, 10), min_size=1, max_size=6),
    min_size=1,
)


def taken(one_s: float, row_s: float, pool_s: float, threads: int = 2, calls: int = 10) -> Times:
    """Calls of a model whose rows divide among threads, and whose pool takes a while to wake."""
    found: Times = {}
    for rows in SIZES:
        found[ThreadStep(rows, 1)] = [one_s + rows * row_s] * calls
        found[ThreadStep(rows, threads)] = [one_s + pool_s + rows * row_s / threads] * calls
    return found


def test_small_calls_use_one_thread_and_large_ones_all() -> None:
    plan = choose_threads(taken(1e-4, 1e-5 * 2, 1e-4))
    assert plan.at(1) == plan.at(128) == 1
    assert plan.at(1024) == plan.at(10**6) == 2


def test_a_pool_that_never_pays_is_never_used() -> None:
    assert choose_threads(taken(0.005, 1e-5, 0.02)) == ThreadPlan.fixed(1)


def test_a_model_that_is_slow_from_the_first_row_on_uses_all_threads_at_once() -> None:
    found = {ThreadStep(rows, n): [0.1 * rows / n] * 5 for rows in SIZES for n in (1, 2)}
    assert choose_threads(found) == ThreadPlan.fixed(2)


def test_what_would_save_less_than_a_thread_may_be_late_is_left_alone() -> None:
    found = taken(1e-4, 2e-6, 0.0)  # 1,024 rows: 2.1 ms or 1.1 ms
    assert choose_threads(found) == ThreadPlan.fixed(1)
    assert choose_threads(found, late_s=0.0).at(1024) == 2


def test_a_pool_that_is_slow_now_and_then_is_judged_by_its_slow_calls() -> None:
    steady = taken(1e-4, 2e-5, 0.0)
    busy = {step: took if step.threads == 1 else [*took[:8], 0.03, 0.03] for step, took in steady.items()}
    assert choose_threads(steady).at(1024) == 2
    assert choose_threads(busy) == ThreadPlan.fixed(1)
    assert choose_threads(busy, quantile=0.5).at(1024) == 2


def test_one_size_that_stalled_is_not_taken_for_a_step() -> None:
    found = taken(1e-4, 2e-5, 1e-4)
    for step in (ThreadStep(1, 1), ThreadStep(16, 1), ThreadStep(1024, 2)):
        stalled = found | {step: [1.5 * each for each in found[step]]}
        assert choose_threads(stalled) == choose_threads(found)


def test_a_number_between_one_and_all_is_used_where_it_is_the_best() -> None:
    found = {ThreadStep(rows, n): [rows * 1e-4 / n + 1e-4 * n**2] * 5 for rows in SIZES for n in thread_candidates(16)}
    plan = choose_threads(found)
    assert [step.threads for step in plan.steps] == [1, 4]


@given(times)
def test_a_plan_only_has_numbers_that_were_measured_and_covers_every_call(found: Times) -> None:
    plan = choose_threads(found)
    assert {plan.at(rows) for rows in SIZES} <= {step.threads for step in found}
    assert [plan.at(rows) for rows in SIZES] == sorted(plan.at(rows) for rows in SIZES)


@given(times, st.floats(0.5, 1.0), st.floats(0, 0.1))
def test_slower_pools_are_never_used_more(found: Times, quantile: float, late_s: float) -> None:
    slower = {step: took if step.threads == 1 else [3 * each for each in took] for step, took in found.items()}
    if any(step.threads == 1 for step in found):
        ones = {rows for rows, n in found if n == 1}
        both = {step: took for step, took in found.items() if step.from_rows in ones}
        before = choose_threads(both, quantile, late_s)
        after = choose_threads({step: slower[step] for step in both}, quantile, late_s)
        assert sum(after.at(rows) == 1 for rows in ones) >= sum(before.at(rows) == 1 for rows in ones)


def test_the_numbers_to_try() -> None:
    assert [thread_candidates(most) for most in (1, 2, 4, 8, 64)] == [(1,), (1, 2), (1, 4), (1, 3, 8), (1, 8, 64)]


def test_a_plan_says_itself_to_people() -> None:
    assert str(ThreadPlan.fixed(1)) == "1 thread"
    assert str(ThreadPlan.fixed(4)) == "4 threads"
    steps = (ThreadStep(1, 1), ThreadStep(512, 4), ThreadStep(4096, 16))
    assert str(ThreadPlan(steps[:2])) == "1 thread below 512 rows, then 4"
    assert str(ThreadPlan(steps)) == "1 thread below 512 rows, then 4 below 4,096 rows, then 16"


@pytest.mark.parametrize("steps", [(), ((2, 1),), ((1, 0),), ((1, 2), (8, 2)), ((1, 2), (1, 3)), ((1, 2), (8, 1))])
def test_steps_that_make_no_plan_are_refused(steps: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidInput, match="each further step has more rows and threads than"):
        ThreadPlan(tuple(ThreadStep(*step) for step in steps))
