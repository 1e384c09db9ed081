from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.plan.row import RowSize
from twoshift.policy.typical_row import TypicalRow

GUESS = RowSize(64.0, 80.0)


def test_before_the_first_row_it_is_the_guess() -> None:
    assert TypicalRow().size(GUESS) == GUESS


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 500)), min_size=1, max_size=50))
def test_it_lies_among_what_was_seen_and_the_guess(calls: list[tuple[int, int]]) -> None:
    typical = TypicalRow()
    for rows, tokens in calls:
        typical.observed(rows, rows * tokens, rows * tokens * tokens)
    seen = [64, *(tokens for _, tokens in calls)]
    size = typical.size(GUESS)
    assert min(seen) * 0.999 <= size.tokens <= max(seen) * 1.001
    assert size.longest >= min(seen) * 0.999


def test_it_follows_traffic_that_changes() -> None:
    typical = TypicalRow()
    for tokens in (10, 300):
        for _ in range(3000):
            typical.observed(2, 2 * tokens, 2 * tokens * tokens)
        size = typical.size(GUESS)
        assert (size.tokens, size.longest) == pytest.approx((tokens, tokens), rel=0.15)
