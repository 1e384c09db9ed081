"""When something that failed is tried again, and who does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.retries import DELIVERIES, RetryPolicy
from twoshift.retrying import retried


@given(st.integers(1, 10_000), st.floats(0, 2 * DELIVERIES.give_up_s), st.floats(0, 1))
def test_pauses_grow_up_to_a_bound_and_end_with_the_patience(attempts: int, age_s: float, dice: float) -> None:
    pause_s = DELIVERIES.pause_s(attempts, age_s, dice)
    if pause_s is None:
        assert age_s + DELIVERIES.longest_s > DELIVERIES.give_up_s
        return
    assert 0 < pause_s <= DELIVERIES.longest_s
    assert age_s + pause_s <= DELIVERIES.give_up_s
    sooner_s = DELIVERIES.pause_s(max(1, attempts - 1), 0, dice)
    assert sooner_s is not None
    assert sooner_s <= pause_s


@given(st.integers(1, 100), st.floats(0, 1), st.floats(0, 50))
def test_a_pause_is_never_shorter_than_the_other_side_asked_for(attempts: int, dice: float, least_s: float) -> None:
    pause_s = RetryPolicy(0.1, 5.0, 60.0).pause_s(attempts, 0.0, dice, least_s)
    assert pause_s is not None
    assert pause_s >= least_s


class Flaky:
    """Fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(self.calls)
        return "done"


def test_work_is_done_again_until_it_succeeds() -> None:
    work, waited = Flaky(3), list[float]()
    assert retried(work, RetryPolicy(1.0, 3.0, 60.0), lambda _error, _age_s: True, waited.append) == "done"
    assert work.calls == 4
    assert len(waited) == 3
    assert all(full_s / 2 <= pause_s <= full_s for full_s, pause_s in zip((1.0, 2.0, 3.0), waited, strict=True))


@pytest.mark.parametrize("reason", ["patience", "another error", "closed"])
def test_the_last_error_is_raised_where_there_is_no_other_attempt(reason: str) -> None:
    work = Flaky(3)
    policy = RetryPolicy(1.0, 3.0, 0.1 if reason == "patience" else 60.0)
    with pytest.raises(OSError, match="1"):
        retried(work, policy, lambda _error, _age_s: reason != "another error", lambda _s: reason == "closed")
    assert work.calls == 1
