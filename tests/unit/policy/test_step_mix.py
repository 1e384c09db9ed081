from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.step_mix import StepMix

steps = st.tuples(st.floats(1e-3, 0.2), st.floats(1e-3, 0.2), st.integers(0, 8))


@given(st.lists(steps, min_size=1, max_size=40), st.floats(0, 1e-3))
def test_reading_costs_nothing_less_than_nothing_and_a_token_no_more_than_was_said(
    seen: list[tuple[float, float, int]], token_s: float
) -> None:
    mix = StepMix()
    for seconds, decoding_s, prompts in seen:
        mix.add(seconds, decoding_s, prompts, 100 * prompts)
    found = mix.reading(token_s)
    if found is not None:
        assert found[0] >= -1e-12
        assert 0 <= found[1] <= token_s


@pytest.mark.parametrize("group", [1, 4])
def test_what_prompts_cost_in_groups_is_shared_out_as_if_they_came_by_chance(group: int) -> None:
    mix = StepMix()
    for at in range(4000):
        reads = at % group == 0
        mix.add(0.010 + reads * (0.012 + group * 100 * 2e-5), 0.010, group * reads, group * reads * 100)
    found = mix.reading(2e-5)
    assert found is not None
    assert found[0] * (1 - math.exp(-1)) == pytest.approx(0.012 / group, rel=0.02)
    assert found[1] == 2e-5
