from __future__ import annotations

import pytest

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.decode import decode_rate, decode_within

COST = CallCost(0.02, 0.001)  # a step, and each sequence


def test_more_sequences_give_more_tokens_in_longer_steps() -> None:
    assert decode_rate(COST, 10).tokens_per_s == pytest.approx(10 / 0.03)
    assert decode_rate(COST, 20).step_s == pytest.approx(0.04)


def test_as_many_as_keep_the_objective_and_not_one_more() -> None:
    assert decode_within(COST, 0.0501).sequences == 30
    assert decode_within(COST, 0.0501, most=8).sequences == 8


def test_an_objective_that_one_sequence_misses_is_refused_with_what_it_takes() -> None:
    with pytest.raises(InvalidInput, match="at least 21"):
        decode_within(COST, 0.02)
