"""How many front processes a server has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.fronts import fronts_wanted


def test_a_slow_device_needs_one_front_and_a_fast_one_as_many_as_its_replicas_can_answer() -> None:
    assert fronts_wanted(65, 3e-4, 16) == 1
    assert fronts_wanted(5_000, 2e-4, 16) == 2
    assert fronts_wanted(50_000, 2e-4, 16) == 3
    assert fronts_wanted(100_000, 2e-4, 16, replicas=2) == 6
    assert fronts_wanted(1e6, 2e-4, 16, replicas=8) == 13


def test_before_anything_is_measured_a_request_is_taken_to_cost_something() -> None:
    assert fronts_wanted(5_000, 0.0, 16) == 2
    assert fronts_wanted(0.0, 0.0, 16) == 1


@given(st.floats(0, 1e6), st.floats(0, 1e-2), st.integers(1, 256), st.integers(1, 16))
def test_there_is_always_one_and_never_more_than_cores_are_left(
    per_s: float, cost_s: float, cores: int, replicas: int
) -> None:
    assert 1 <= fronts_wanted(per_s, cost_s, cores, replicas) <= max(1, min(cores - 3, 3 * replicas))
