from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.rising_line import RisingLine, Seen

seconds = st.floats(1e-4, 10.0)
sizes = st.lists(st.builds(Seen, seconds, seconds, st.floats(1e-3, 1.0)), min_size=1, max_size=12)


@given(sizes, seconds, seconds)
def test_more_never_takes_less_and_nothing_takes_no_time(seen: list[Seen], one: float, other: float) -> None:
    line, (small, large) = RisingLine(seen), sorted((one, other))
    assert 0 < line(small) <= line(large) * (1 + 1e-9)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=8, unique_by=lambda each: each[0]))
def test_sizes_that_were_just_seen_take_what_they_took_where_larger_ones_took_longer(
    seen: list[tuple[float, float]],
) -> None:
    said, took = sorted(each for each, _ in seen), sorted(each for _, each in seen)
    line = RisingLine([Seen(x, y, 1.0) for x, y in zip(said, took, strict=True)])
    for x, y in zip(said, took, strict=True):
        assert line(x) == pytest.approx(y)


def test_what_a_small_call_takes_longer_is_added_to_a_larger_one() -> None:
    assert RisingLine([Seen(0.01, 0.03, 1.0)])(0.1) == pytest.approx(0.12)


def test_what_a_large_call_takes_longer_is_not_added_to_a_smaller_one() -> None:
    """A job alone reads 8,000 tokens in a step of 190 ms; beside live streams 250 are read in one of 24."""
    assert RisingLine([Seen(0.158, 0.192, 1.0)])(0.028) == pytest.approx(0.034, rel=0.01)


def test_calls_smaller_than_those_that_all_take_the_same_take_the_same() -> None:
    """A step that reads is launched layer by layer, which takes 44 ms however little is read."""
    line = RisingLine([Seen(0.025, 0.044, 1.0), Seen(0.036, 0.044, 1.0), Seen(0.16, 0.192, 1.0)])
    assert line(0.017) == pytest.approx(0.044)


def test_one_size_does_not_decide_what_another_takes() -> None:
    line = RisingLine([Seen(0.036, 0.023, 1.0), Seen(0.160, 0.192, 1.0)])
    assert line(0.036) == pytest.approx(0.023)
    assert line(0.040) < 0.030


def test_a_size_that_was_not_seen_for_long_gives_way_to_what_newer_ones_say() -> None:
    fresh = [Seen(0.01, 0.01, 1.0), Seen(0.02, 0.02, 1.0)]
    assert RisingLine([*fresh, Seen(0.04, 0.4, 1.0)])(0.04) == pytest.approx(0.4)
    assert RisingLine([*fresh, Seen(0.04, 0.4, 1e-3)])(0.04) == pytest.approx(0.04, rel=0.1)
