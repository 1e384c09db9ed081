from __future__ import annotations

import pytest

from twoshift.policy.cost import CallCost
from twoshift.policy.profile import Profile, slowdown_now
from twoshift.types import CallSize

STORED = Profile("m", CallCost.line(0.01, 0.001), "2026-01-01T00:00:00+00:00", 40)
ONE, MANY = CallSize.uniform(1), CallSize.uniform(8)


def seen(one: float, many: float) -> list[tuple[CallSize, float]]:
    """Calls that take so many times what the profile says."""
    return [(ONE, one * STORED.cost.seconds(ONE)), (MANY, many * STORED.cost.seconds(MANY))]


@pytest.mark.parametrize("ratios", [(1.0, 1.0), (0.8, 1.3), (1.4, 0.7)])
def test_calls_that_agree_with_a_profile_leave_it_as_it_is(ratios: tuple[float, float]) -> None:
    assert slowdown_now(STORED, seen(*ratios)) == 1.0


@pytest.mark.parametrize("ratios", [(0.2, 0.3), (1.0, 0.3), (3.0, 0.3)])
def test_a_profile_that_a_call_is_far_quicker_than_is_to_be_measured_again(ratios: tuple[float, float]) -> None:
    assert slowdown_now(STORED, seen(*ratios)) is None


def test_a_machine_that_is_busy_now_is_as_slow_as_its_calls() -> None:
    assert slowdown_now(STORED, seen(4.0, 3.0)) == pytest.approx(3.5)


def test_without_a_call_a_profile_is_believed() -> None:
    assert slowdown_now(STORED, []) == 1.0
