"""Rows are prepared on the loop once that has shown to be quick, and not to wait."""

from __future__ import annotations

import pytest

from twoshift.serve.prepare_time import PrepareTime


def seen(is_users: bool, count: int = 1_000, clock_s: float = 0.001, per_character_s: float = 1e-7) -> PrepareTime:
    made = PrepareTime(is_users)
    for number in range(count):
        characters = 100 * (1 + number % 3)
        made.observed(characters, clock_s, characters * per_character_s)
    return made


def test_a_library_prepares_short_texts_on_the_loop_from_the_first_one() -> None:
    made = PrepareTime(is_users=False)
    assert (made.is_quick(100), made.is_quick(10_000)) == (True, False)


def test_a_users_code_does_so_after_it_was_quick_for_a_while() -> None:
    assert not seen(True, 0).is_quick(100)
    assert not seen(True, 10).is_quick(100)
    assert seen(True).is_quick(100)


@pytest.mark.parametrize("is_users", [False, True])
def test_what_it_costs_decides_how_long_a_request_may_be(is_users: bool) -> None:
    assert seen(is_users, per_character_s=1e-7).is_quick(4_000)
    assert not seen(is_users, per_character_s=1e-5).is_quick(100)


def test_a_users_code_that_waits_once_goes_back_to_threads() -> None:
    made = seen(True)
    made.observed(100, 0.2, 1e-5)
    assert not made.is_quick(100)
    for _ in range(100):
        made.observed(100, 0.001, 1e-5)
    assert not made.is_quick(100)
