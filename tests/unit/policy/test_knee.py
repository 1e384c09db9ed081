from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.cost import CallCost, Ceiling
from twoshift.policy.knee import KNEE_SHARE, knee_s
from twoshift.types import CallSize

MAX_ROWS, MAX_TOKENS = 400, 50_000


def _ceiling(rows: int, tokens: int, squares: int, seconds: float) -> Ceiling:
    return Ceiling(rows, tokens, squares, seconds)


@st.composite
def curves(draw: st.DrawFn) -> CallCost:
    ceilings = draw(
        st.lists(
            st.builds(
                _ceiling, st.integers(1, 500), st.integers(1, 60_000), st.integers(1, 10**8), st.floats(1e-4, 1.0)
            ),
            max_size=4,
        )
    )
    return CallCost(
        draw(st.floats(1e-5, 0.02)),
        draw(st.floats(1e-7, 1e-3)),
        floor_s=draw(st.one_of(st.just(0.0), st.floats(1e-4, 0.05))),
        per_square_s=draw(st.one_of(st.just(0.0), st.floats(1e-10, 1e-6))),
        soft=draw(st.booleans()),
        per_row_s=draw(st.one_of(st.just(0.0), st.floats(1e-6, 1e-3))),
        ceilings=tuple(sorted(ceilings, key=lambda each: -each.tokens)),
    )


@given(curves(), st.floats(0.001, 2.0), st.integers(1, 600))
def test_whole_rows_that_reach_the_knee_have_nearly_the_best_throughput(
    cost: CallCost, longest_s: float, row_tokens: int
) -> None:
    at_s = knee_s(cost, longest_s, MAX_ROWS, MAX_TOKENS, row_tokens)
    most = min(MAX_ROWS, MAX_TOKENS // row_tokens)
    taken_s = [cost.seconds(CallSize.uniform(rows, row_tokens)) for rows in range(1, most + 1)]
    fitting = [seconds for seconds in taken_s if seconds <= longest_s]
    assert at_s <= longest_s * (1 + 1e-6)
    if not fitting:
        return
    best = max(rows / seconds for rows, seconds in enumerate(fitting, start=1))
    # as the lane policy fills a call: all rows within the knee, and the one that reaches it
    rows = sum(seconds <= at_s for seconds in fitting)
    if rows < len(fitting) and (rows == 0 or fitting[rows - 1] < at_s):
        rows += 1
    assert rows / fitting[rows - 1] >= (KNEE_SHARE - 1e-6) * best


@pytest.mark.parametrize("longest_s", [1.0, 100.0])
def test_the_knee_of_a_line_is_nineteen_times_its_overhead(longest_s: float) -> None:
    at_s = knee_s(CallCost.line(0.004, 0.00025), 1e6, 10**9, 10**9)
    assert at_s == pytest.approx(20 * 0.004, rel=0.01)
    assert knee_s(CallCost.line(0.004, 0.00025), longest_s, 10**9, 10**9) <= at_s


def test_the_knee_of_a_hinge_without_overhead_is_the_end_of_its_floor() -> None:
    assert knee_s(CallCost(0.0, 0.0001, floor_s=0.003), 1.0, 10_000, 10_000) == pytest.approx(0.003)


def test_a_measured_call_that_is_cheaper_than_the_line_is_where_the_knee_lies() -> None:
    plain = CallCost.line(0.001, 0.001)
    cheap = CallCost(0.001, 0.001, ceilings=(Ceiling(16, 16, 16, 0.008),))
    assert knee_s(plain, 0.2, 1000, 1000) > 0.015
    assert knee_s(cheap, 0.2, 1000, 1000) == pytest.approx(0.008)


def test_a_row_longer_than_any_call_may_be_has_the_longest_call() -> None:
    assert knee_s(CallCost.line(0.5, 0.001), 0.1, 1000, 1000) == 0.1
