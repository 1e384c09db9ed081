"""Ticks are few, round, in order and inside."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.report.scale import plan_scale
from twoshift.report.ticks import duration_ticks, hour_step, linear_ticks, log_ticks, multiples, nice_step
from twoshift.report.values import Axis

sizes = st.floats(min_value=1e-12, max_value=1e12)
counts = st.integers(min_value=2, max_value=12)


@given(sizes)
def test_a_nice_step_is_one_two_or_five_times_a_power_of_ten(least: float) -> None:
    step = nice_step(least)
    digits = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    assert any(math.isclose(digits, factor, rel_tol=1e-9) for factor in (1, 2, 5))
    assert least * (1 - 1e-9) <= step <= least * 2.5 * (1 + 1e-9)


@given(st.floats(min_value=-1e9, max_value=1e9), sizes, counts)
def test_linear_ticks_are_few_and_even_and_inside(lo: float, span: float, most: int) -> None:
    hi = lo + max(span, abs(lo) * 1e-6)
    ticks = linear_ticks(lo, hi, most)
    slack = 1e-6 * (hi - lo)
    assert len(ticks) <= most + 1
    assert all(lo - slack <= tick <= hi + slack for tick in ticks)
    gaps = [after - before for before, after in pairwise(ticks)]
    assert all(math.isclose(gap, gaps[0], rel_tol=1e-3) for gap in gaps)


@given(sizes, st.floats(min_value=1.001, max_value=1e12), counts)
def test_log_ticks_are_in_order_and_inside(lo: float, ratio: float, most: int) -> None:
    for ticks in (log_ticks(lo, lo * ratio, most), duration_ticks(lo, lo * ratio, most)):
        assert list(ticks) == sorted(set(ticks))
        assert all(lo * (1 - 1e-6) <= tick <= lo * ratio * (1 + 1e-6) for tick in ticks)
        assert len(ticks) <= 2 * most + 2


@given(st.floats(min_value=1e-4, max_value=1e5))
def test_an_hour_step_is_never_under_what_was_asked(least: float) -> None:
    assert hour_step(least) >= least * (1 - 1e-6)


def test_a_day_is_cut_every_three_hours() -> None:
    assert multiples(0, 24, hour_step(24 / 9)) == (0, 3, 6, 9, 12, 15, 18, 21, 24)


def test_ticks_carry_no_float_dust() -> None:
    assert linear_ticks(0, 0.5, 5) == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6),
    st.sampled_from(["number", "hours", "ms", "seconds", "usd", "share"]),
    st.sampled_from(["linear", "log"]),
    st.booleans(),
)
def test_a_scale_holds_whatever_it_is_given(values: list[float], kind, scale, rounded: bool) -> None:
    planned = plan_scale(Axis(kind=kind, scale=scale), values, 5, zero=rounded, round_ends=rounded)
    assert planned.lo < planned.hi
    assert len(planned.ticks) == len(planned.labels) <= 16
    placed = planned.over(10, 110)
    assert all(10 <= placed(tick) <= 110 for tick in planned.ticks)
    assert all(10 <= placed(value) <= 110 for value in values if math.isfinite(value))


@pytest.mark.parametrize(
    ("top", "ends"), [(10.1, (0.0, 12.0)), (4209.0, (0.0, 5000.0)), (0.93, (0.0, 1.0)), (50.0, (0.0, 50.0))]
)
def test_a_rounded_axis_wastes_little_height(top: float, ends: tuple[float, float]) -> None:
    planned = plan_scale(Axis(), [0.0, top], 5, zero=True, round_ends=True)
    assert (planned.lo, planned.hi) == ends
