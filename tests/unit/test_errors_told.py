from __future__ import annotations

import pytest

from twoshift.errors import OverLimit, TryLater


@pytest.mark.parametrize(
    ("why", "after_s", "told"),
    [
        ("full", 30.0, "full; try again in 30 s"),
        ("full", 12_200.0, "full; try again in 3h 23m"),
        ("full; try again in 30 s", 30.0, "full; try again in 30 s"),
        (str(OverLimit("full; later", 7200.0)), 0.25, "full; later; try again in 250 ms"),
    ],
)
def test_when_to_come_back_is_said_once_and_as_people_say_it(why: str, after_s: float, told: str) -> None:
    assert str(TryLater(why, after_s)) == told
