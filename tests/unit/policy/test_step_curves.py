from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.policy.cost import CallCost
from twoshift.policy.step_curves import StepCurves
from twoshift.types import CallSize

DECODE, READ = CallSize.uniform(8), CallSize.of([1] * 8 + [250])


def test_a_kind_of_step_learns_only_from_its_own() -> None:
    curves = StepCurves(CallCost.line(0.005, 0.00002))
    decode_s, read_s = curves.seconds(DECODE), curves.seconds(READ)
    for at in range(20):
        curves.observed(READ, 2 * read_s, 0.01 * at)
    assert curves.seconds(READ) == pytest.approx(2 * read_s, rel=0.05)
    assert curves.seconds(DECODE) == decode_s


def test_a_step_that_reads_is_never_predicted_to_be_shorter_than_one_that_decodes_as_many_sequences() -> None:
    curves = StepCurves(CallCost.line(0.005, 0.00002))
    for at in range(20):
        curves.observed(DECODE, 4 * curves.seconds(DECODE), 0.01 * at)
    assert curves.seconds(READ) >= curves.seconds(DECODE)


def test_what_small_steps_take_longer_is_added_to_large_ones_and_does_not_multiply_them() -> None:
    cost = CallCost(0.004, 0.00002)
    curves, large = StepCurves(cost), CallSize.of([1] * 8 + [4000])
    for at in range(40):
        curves.observed(READ, cost.seconds(READ) + 0.012, 0.01 * at)
    assert curves.seconds(READ) == pytest.approx(cost.seconds(READ) + 0.012, rel=0.02)
    assert curves.seconds(large) == pytest.approx(cost.seconds(large) + 0.012, rel=0.05)


def test_steps_of_many_sizes_tell_a_slower_device_from_what_is_added() -> None:
    cost = CallCost(0.004, 0.00002)
    curves, unseen = StepCurves(cost), CallSize.uniform(2000)
    for at in range(60):
        size = CallSize.uniform((8, 60, 500)[at % 3])
        curves.observed(size, 2 * cost.seconds(size), 0.01 * at)
    assert curves.seconds(unseen) == pytest.approx(2 * cost.seconds(unseen), rel=0.1)


def test_a_device_that_is_quicker_than_measured_is_never_predicted_to_take_nothing() -> None:
    cost = CallCost(0.004, 0.00002)
    curves = StepCurves(cost)
    for at in range(20):
        curves.observed(CallSize.uniform(500), 0.5 * cost.seconds(CallSize.uniform(500)), 0.01 * at)
    assert curves.seconds(CallSize.uniform(1)) == pytest.approx(0.5 * cost.seconds(CallSize.uniform(1)), rel=0.02)


def test_the_launch_of_a_step_that_reads_is_its_own_although_the_step_before_ends_later_by_it() -> None:
    cost = CallCost(0.005, 0.00002)
    curves = StepCurves(cost)
    decode_s, read_s = cost.seconds(DECODE), cost.seconds(READ)
    for at in range(30):
        curves.observed(DECODE, decode_s, 0.03 * at)
        curves.observed(DECODE, decode_s + 0.01, 0.03 * at + 0.01, next_reads=True)
        curves.observed(READ, read_s, 0.03 * at + 0.02)
    assert curves.seconds(DECODE) == pytest.approx(decode_s, rel=0.02)
    assert curves.seconds(READ) == pytest.approx(read_s + 0.01, rel=0.02)


def test_steps_without_background_sequences_have_a_curve_of_their_own_and_teach_the_other_until_it_knows_more() -> None:
    cost = CallCost(0.005, 0.00002)
    curves = StepCurves(cost)
    for at in range(20):
        curves.observed(DECODE, 0.008, 0.01 * at, background=False)
    assert curves.alone.seconds(DECODE) == pytest.approx(0.008) == curves.seconds(DECODE)
    for at in range(20, 40):
        curves.observed(DECODE, 0.011, 0.01 * at)
    assert curves.alone.seconds(DECODE) == pytest.approx(0.008)
    assert curves.seconds(DECODE) == pytest.approx(0.011)


def test_large_steps_of_a_job_alone_do_not_decide_what_small_ones_take_beside_streams() -> None:
    """Launching and running overlap once every step reads, and the device is slower for much than it was measured."""
    cost = CallCost(0.004, 23e-6, per_row_s=20e-6, reading_s=0.012)
    curves, small, middle = StepCurves(cost), CallSize.of([1] * 170 + [300]), CallSize.of([1] * 170 + [600])
    large = CallSize.of([1] * 30 + [8000])
    for at in range(16):
        curves.observed(large, 1.2 * cost.seconds(large), 0.2 * at)
    for at in range(60):
        size = small if at % 2 else middle
        curves.observed(size, cost.seconds(size) - 0.008, 4.0 + 0.03 * at)
    for size in (small, middle):
        assert curves.seconds(size) == pytest.approx(cost.seconds(size) - 0.008, rel=0.1)
    assert curves.seconds(large) == pytest.approx(1.2 * cost.seconds(large), rel=0.2)


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 8000), st.floats(0.05, 20.0)), min_size=1, max_size=12),
    st.integers(1, 300),
    st.integers(1, 8000),
)
@settings(max_examples=examples(60), deadline=None)
def test_whatever_was_seen_more_work_never_takes_less_and_none_takes_no_time(
    seen: list[tuple[int, int, float]], rows: int, more: int
) -> None:
    cost = CallCost(0.004, 23e-6, per_row_s=20e-6, reading_s=0.012)
    curves = StepCurves(cost)
    for at in range(5 * len(seen)):
        decoding, read, times = seen[at % len(seen)]
        size = CallSize.of([1] * decoding + ([read] if read > 1 else []))
        curves.observed(size, times * cost.seconds(size), 0.01 * at)
    small, large = CallSize.uniform(rows), CallSize.uniform(rows + more)
    assert 0 < curves.seconds(small) <= curves.seconds(large)
    assert curves.seconds(small) <= curves.seconds(small, 0.9)
    assert 0 < curves.seconds(CallSize.of([1] * rows + [2])) <= curves.seconds(CallSize.of([1] * rows + [2 + more]))


def test_a_plain_curve_says_of_all_steps_together_what_they_took() -> None:
    """Prompts that come two at a time in every other step: a plan has them fall on steps by chance."""
    cost = CallCost(0.004, 23e-6, per_row_s=20e-6, reading_s=0.006)
    curves, decode, read = StepCurves(cost), CallSize.uniform(250), CallSize.of([1] * 248 + [256, 256])
    decode_s, read_s = 1.1 * cost.seconds(decode), 1.5 * cost.seconds(read)
    for at in range(400):
        curves.observed(decode, decode_s, 0.02 * at, background=False)
        curves.observed(read, read_s, 0.02 * at + 0.01, background=False, prompts=2)
    _, live = curves.learned
    assert live is not None
    assert live.seconds(decode) == pytest.approx(decode_s, rel=0.01)
    share = 1 - math.exp(-1)  # of steps, where one prompt comes in a step on average
    planned_s = live.seconds(decode) + share * live.reading_s + 255 * live.per_token_s
    assert planned_s == pytest.approx((decode_s + read_s) / 2, rel=0.01)
    again = StepCurves(cost, live)
    assert again.alone.seconds(read) == pytest.approx(live.seconds(read), rel=0.01), "a restart begins with it"
    assert again.seconds(read) == cost.seconds(read), "jobs pay nothing of it"


def test_few_prompts_do_not_decide_what_reading_costs() -> None:
    cost = CallCost(0.004, 23e-6, per_row_s=20e-6, reading_s=0.006)
    curves = StepCurves(cost)
    for at in range(8):
        curves.observed(READ, 3 * cost.seconds(READ), 0.01 * at, background=False)
    _, live = curves.learned
    assert live is not None
    assert live.seconds(READ) == pytest.approx(curves.alone.seconds(READ), rel=0.02)
