"""How many front processes a server has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.fronts import front_for, fronts_wanted


def test_a_slow_device_needs_one_front_and_a_fast_one_as_many_as_its_replicas_can_answer() -> None:
    assert fronts_wanted(65, 3e-4, 16) == 1
    assert fronts_wanted(5_000, 2e-4, 16) == 2
    assert fronts_wanted(50_000, 2e-4, 16) == 5
    assert fronts_wanted(100_000, 2e-4, 24, replicas=2) == 10
    assert fronts_wanted(1e6, 2e-4, 16, replicas=8) == 13


def test_before_anything_is_measured_a_request_is_taken_to_cost_something() -> None:
    assert fronts_wanted(5_000, 0.0, 16) == 2
    assert fronts_wanted(0.0, 0.0, 16) == 1


@given(st.floats(0, 1e6), st.floats(0, 1e-2), st.integers(1, 256), st.integers(1, 16))
def test_there_is_always_one_and_never_more_than_cores_are_left(
    per_s: float, cost_s: float, cores: int, replicas: int
) -> None:
    assert 1 <= fronts_wanted(per_s, cost_s, cores, replicas) <= max(1, min(cores - 3, 7 * replicas))


def test_a_front_that_has_more_connections_than_another_gives_a_new_one_away() -> None:
    assert front_for([5, 3, 9], own=2) == 1
    assert front_for([3, 3, 4], own=2) is None
    assert front_for([100, 105, 100], own=1) is None  # as even as chance need be
    assert front_for([7], own=0) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 10_000))
def test_connections_that_come_by_chance_end_up_even(connections: list[int], seed: int) -> None:
    for at in range(400):
        own = (seed + at * at) % len(connections)
        chosen = front_for(connections, own)
        connections[own if chosen is None else chosen] += 1
    assert max(connections) - min(connections) <= max(2, 0.1 * min(connections)) + 1
