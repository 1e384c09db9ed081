"""How many workers a job with a window has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.deadline import DeadlinePolicy
from twoshift.policy.job_scaling import JobScaleLimits, JobScalePolicy


def policy(deadline_s: float, shards: int, most: int = 10, load_s: float = 5.0) -> JobScalePolicy:
    """After so many shards of 100 items, 10 s each."""
    deadline = DeadlinePolicy(deadline_s, 10.0)
    for _ in range(shards):
        deadline.observed(100, 10.0, 0.0)
    return JobScalePolicy(deadline, JobScaleLimits(most, load_s))


def test_more_workers_where_the_rest_is_too_much() -> None:
    wanted = policy(105.0, 20).decide(5_000, 1, 50, 0.0)  # 500 s of work in 100 s
    assert 5 <= wanted.workers <= 7
    assert wanted.why


def test_none_beyond_the_shards_that_nobody_has() -> None:
    assert policy(105.0, 20).decide(5_000, 1, 2, 0.0).workers == 3


def test_none_that_would_not_be_loaded_in_time() -> None:
    assert policy(4.0, 20).decide(5_000, 1, 50, 0.0).workers == 1


def test_fewer_where_that_is_sure_to_be_enough() -> None:
    assert policy(10_000.0, 20).decide(5_000, 6, 50, 0.0).workers == 1
    assert policy(10_000.0, 2).decide(5_000, 6, 50, 0.0).workers == 6  # two shards prove little


def test_a_change_is_given_time_to_show() -> None:
    made = policy(105.0, 20)
    grown = made.decide(5_000, 1, 50, 0.0).workers
    assert made.decide(9_000, grown, 50, 20.0).workers == grown
    assert made.decide(9_000, grown, 50, 26.0).workers > grown


@given(
    deadline_s=st.floats(0.1, 1e5),
    shards=st.integers(0, 30),
    most=st.integers(1, 50),
    remaining=st.floats(0, 1e7),
    there=st.integers(1, 50),
    idle=st.integers(0, 1000),
    load_s=st.floats(0, 1e3),
)
def test_there_is_always_one_and_never_one_too_many(
    deadline_s: float, shards: int, most: int, remaining: float, there: int, idle: int, load_s: float
) -> None:
    there = min(there, most)
    made = policy(deadline_s, shards, most, load_s)
    wanted = made.decide(remaining, there, idle, 0.0).workers
    assert 1 <= wanted <= max(there, min(most, there + idle))
    assert made.decide(remaining, wanted, idle, 0.0).workers == wanted or wanted == there


@pytest.mark.parametrize(("most", "load_s"), [(0, 1.0), (1, -1.0), (1, float("inf"))])
def test_limits_that_make_no_sense_are_refused(most: int, load_s: float) -> None:
    with pytest.raises(InvalidInput):
        JobScaleLimits(most, load_s)
