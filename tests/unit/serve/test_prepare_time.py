"""A user's own preparation is done on the loop once it has shown that it does not wait."""

from __future__ import annotations

from twoshift.serve.prepare_time import PrepareTime


def test_a_library_is_trusted_and_a_users_code_after_it_was_quick_for_a_while() -> None:
    assert PrepareTime(waits=False).is_quick
    made, quick = PrepareTime(waits=True), 0
    while not made.is_quick:
        made.observed(0.001, 0.0001)
        quick += 1
    assert quick >= 50


def test_code_that_takes_the_processor_for_long_stays_in_threads() -> None:
    made = PrepareTime(waits=True)
    for _ in range(1_000):
        made.observed(0.005, 0.004)
    assert not made.is_quick


def test_code_that_waits_once_goes_back_to_threads() -> None:
    made = PrepareTime(waits=True)
    for _ in range(1_000):
        made.observed(0.001, 0.0001)
    made.observed(0.2)
    assert not made.is_quick
    for _ in range(100):
        made.observed(0.001, 0.0001)
    assert not made.is_quick
