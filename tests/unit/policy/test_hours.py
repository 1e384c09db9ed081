"""Hours of the week in which a job may run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.hours import Hours

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEK = 7 * 24 * 60


def at(when: str) -> int:
    day, time = when.split()
    hours, minutes = map(int, time.split(":"))
    return 24 * 60 * DAYS.index(day) + 60 * hours + minutes


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("22:00-06:00", ["mon 22:00", "tue 05:59", "mon 00:00", "sun 23:59"], ["mon 06:00", "sun 21:59"]),
        ("09:30-17:00", ["mon 09:30", "sun 16:59"], ["mon 09:29", "sun 17:00"]),
        ("00:00-24:00", ["mon 00:00", "sun 23:59"], []),
        ("sat, sun", ["sat 00:00", "sun 23:59"], ["fri 23:59", "mon 00:00"]),
        ("fri 22:00-06:00", ["fri 22:00", "sat 05:59"], ["fri 05:00", "sat 06:00", "sat 22:00"]),
        ("sun 22:00-06:00", ["sun 23:00", "mon 05:59"], ["mon 06:00", "sun 05:00"]),
        ("sat-mon 12:00-13:00", ["sat 12:00", "sun 12:00", "mon 12:00"], ["tue 12:00", "fri 12:00"]),
        (
            "mon-fri 22:00-06:00, sat, sun",
            ["mon 22:00", "fri 23:00", "sat 05:00", "sat 12:00", "sun 23:59", "tue 01:00"],
            ["mon 05:00", "mon 12:00", "fri 21:59"],
        ),
        ("Mon-FRI  8:00 - 9:00", ["mon 08:00", "fri 08:59"], ["sat 08:00"]),
    ],
)
def test_a_span_belongs_to_the_day_on_which_it_begins(hours: str, inside: list[str], outside: list[str]) -> None:
    made = Hours.parse(hours)
    assert [when for when in inside if not made.contains(at(when))] == []
    assert [when for when in outside if made.contains(at(when))] == []


@pytest.mark.parametrize(
    "hours",
    [
        "",
        "night",
        "25:00-06:00",
        "22:60-06:00",
        "06:00-06:00",
        "24:00-06:00",
        "mon-",
        "mon,",
        "mon 22:00",
        "mun",
        ",",
        "22:00",
    ],
)
def test_other_texts_are_refused(hours: str) -> None:
    with pytest.raises(InvalidInput, match="hours"):
        Hours.parse(hours)


@given(st.integers(0, 6), st.integers(0, 24 * 60 - 1), st.integers(1, 24 * 60 - 1))
def test_a_span_has_as_many_minutes_as_it_says(day: int, begin: int, length: int) -> None:
    end = (begin + length) % (24 * 60)
    hours = Hours.parse(f"{DAYS[day]} {begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}")
    assert sum(map(hours.contains, range(WEEK))) == length
