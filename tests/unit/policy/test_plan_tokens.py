from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan import (
    Lever,
    batch_lever,
    model_lever,
    padding_lever,
    plan_tokens,
    quantisation_lever,
    spot_lever,
)


def test_dollars_per_million_tokens_follow_from_rate_price_and_utilisation() -> None:
    made = plan_tokens(2500, 3.00, 0.5)
    assert made.usd_per_million_tokens == pytest.approx(1e6 * 3.00 / (2500 * 0.5 * 3600))
    assert made.tokens_per_usd == pytest.approx(1.5e6)


def test_forty_percent_padding_burns_forty_percent_of_the_compute() -> None:
    effect = plan_tokens(2500, 3.00, 1.0, [padding_lever(0.4)]).levers[0]
    assert effect.saving == pytest.approx(0.4)


def test_a_mixture_of_experts_costs_two_flops_an_active_parameter() -> None:
    assert model_lever(47e9, 13e9).factor == pytest.approx(13 / 47)


def test_a_larger_batch_pays_the_overhead_once() -> None:
    lever = batch_lever(CallCost.line(0.006, 0.00018), 1, 512)
    assert 1 / lever.factor == pytest.approx(32.2, abs=0.05)


def test_a_measured_speedup_replaces_the_typical_one() -> None:
    assert quantisation_lever("fp8", 2.0).factor == 0.5
    assert quantisation_lever("int8").factor < 1
    with pytest.raises(InvalidInput, match="quantisation"):
        quantisation_lever("fp9")


@given(st.lists(st.floats(0.05, 1.5), max_size=5), st.floats(1, 1e6), st.floats(0.01, 100))
def test_all_levers_together_multiply(factors: list[float], rate: float, price: float) -> None:
    made = plan_tokens(rate, price, 1.0, [Lever("any", f, "") for f in factors])
    expected = made.usd_per_million_tokens
    for factor in factors:
        expected *= factor
    assert made.together.usd_per_million_tokens == pytest.approx(expected)


def test_spot_is_thirty_to_seventy_percent_off_and_never_free() -> None:
    assert spot_lever(0.7).factor == pytest.approx(0.3)
    with pytest.raises(InvalidInput, match="spot_discount"):
        spot_lever(1.0)
