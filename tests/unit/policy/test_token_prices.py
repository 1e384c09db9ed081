from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.plan.token_prices import token_prices


@given(st.floats(0, 1e6), st.floats(0, 1), st.integers(1, 10**9), st.integers(1, 10**9))
def test_the_prices_give_back_the_sum(usd: float, share: float, read: int, made: int) -> None:
    prices = token_prices(usd, share, read, made)
    assert prices.input is not None
    assert prices.output is not None
    assert (prices.input * read + prices.output * made) / 1e6 == pytest.approx(usd)


def test_without_a_price_or_without_answers_nobody_can_tell() -> None:
    assert token_prices(None, 0.5, 10, 10) == (None, None)
    assert token_prices(1.0, 0.5, 10, 0) == (None, None)
    assert token_prices(1.0, 1.0, 0, 10) == (None, 1e5)
