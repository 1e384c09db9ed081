"""Thinning keeps what the eye would see; cleaning drops what cannot be drawn."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from twoshift.report import Series
from twoshift.report.points import clean, nearest, stack, stepped, thin

ys = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=400)


@given(ys, st.integers(min_value=1, max_value=50))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float], columns: int) -> None:
    points = [(float(x), y) for x, y in enumerate(values)]
    kept = thin(points, columns)
    assert len(kept) <= 2 * columns + 4
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert min(y for _, y in kept) == min(values)
    assert max(y for _, y in kept) == max(values)
    assert set(kept) <= set(points)
    assert kept == sorted(kept, key=lambda point: point[0])


def test_a_hundred_thousand_points_are_thinned_to_the_width_without_losing_a_spike() -> None:
    rng = random.Random(1)  # noqa: S311 a fixed sample
    points = [(float(x), rng.random()) for x in range(100_000)]
    points[54_321] = (54_321.0, 99.0)
    kept = thin(points, 800)
    assert len(kept) <= 1604
    assert (54_321.0, 99.0) in kept


def test_many_points_at_one_x_do_not_divide_by_zero() -> None:
    assert thin([(1.0, float(y)) for y in range(100)], 10) == [(1.0, 0.0), (1.0, 99.0)]


def test_what_is_not_finite_is_dropped_and_the_rest_sorted() -> None:
    series = Series("a", [3, 1, math.nan, 2, 4], [1, 2, 3, math.inf, -math.inf])
    assert clean(series) == [(1.0, 2.0), (3.0, 1.0)]


def test_a_log_axis_drops_what_is_not_positive() -> None:
    assert clean(Series("a", [0, 1, 2], [1, 0, 5]), log_x=True, log_y=True) == [(2.0, 5.0)]


def test_the_nearest_point_is_found_on_either_side_and_beyond_the_ends() -> None:
    points = [(0.0, 1.0), (10.0, 2.0), (20.0, 3.0)]
    assert [nearest(points, x)[1] for x in (-5, 4, 6, 99)] == [1.0, 1.0, 2.0, 3.0]


def test_stacked_edges_add_up_even_over_different_xs() -> None:
    lower, upper = stack([[(0.0, 1.0), (2.0, 3.0)], [(0.0, 1.0), (1.0, 1.0), (2.0, -5.0)]])
    assert lower == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert upper == [(0.0, 2.0), (1.0, 3.0), (2.0, 3.0)]


def test_a_step_holds_its_value_until_the_next_point() -> None:
    assert stepped([(0.0, 1.0), (2.0, 5.0)]) == [(0.0, 1.0), (2.0, 1.0), (2.0, 5.0)]
    assert stepped([(0.0, 1.0)]) == [(0.0, 1.0)]
