"""Cron expressions, against a search minute by minute."""

from __future__ import annotations

import datetime
import itertools
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.cron import Cron
from twoshift.policy.due import Offset, last_due_s, next_due_s

EPOCH = datetime.datetime(1970, 1, 1)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia")


def at(text: str) -> int:
    return int((datetime.datetime.fromisoformat(text) - EPOCH).total_seconds()) // 60


def offset_of(zone: str) -> Offset:
    known = ZoneInfo(zone)

    def offset(at_s: int) -> int:
        found = datetime.datetime.fromtimestamp(at_s, known).utcoffset()
        assert found is not None
        return int(found.total_seconds())

    return offset


def names(word: str, value: int, least: int, most: int, names: dict[str, int] | None = None) -> bool:
    """Whether a field names a value: the definition, as slow as it may be."""
    for part in word.split(","):
        span, _, step = part.partition("/")
        ends = (
            [str(least), str(most)]
            if span == "*"
            else (span.split("-") * 2)[:2]
            if "-" not in span
            else span.split("-")
        )
        begin, end = ((names or {}).get(each.lower(), -1) if not each.isdigit() else int(each) for each in ends)
        if begin <= value <= end and (value - begin) % int(step or 1) == 0:
            return True
    return False


MONTHS: dict[str, int] = {month: number for number, month in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
)}  # fmt: skip
DAYS: dict[str, int] = {day: number for number, day in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


def is_named(text: str, wall: datetime.datetime) -> bool:
    minute, hour, day, month, weekday = text.split()
    of_week = wall.isoweekday() % 7
    by_month = names(day, wall.day, 1, 31)
    by_week = any(names(weekday, each, 0, 6, DAYS) for each in ({0, 7} if of_week == 0 else {of_week}))
    both = day.startswith("*") or weekday.startswith("*")
    return (
        names(minute, wall.minute, 0, 59)
        and names(hour, wall.hour, 0, 23)
        and names(month, wall.month, 1, 12, MONTHS)
        and ((by_month and by_week) if both else (by_month or by_week))
    )


def words(least: int, most: int, named: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    stepped = st.tuples(st.one_of(span, st.just("*")), st.integers(1, 30)).map(lambda each: f"{each[0]}/{each[1]}")
    kinds = [number.map(str), span, stepped, *([st.sampled_from(named)] if named else [])]
    return st.one_of(st.just("*"), st.lists(st.one_of(*kinds), min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    words(0, 59), words(0, 23), words(1, 28), words(1, 12, ("jan", "Jul", "DEC")), words(0, 7, ("sun", "Wed", "sat"))
).map(" ".join)


@given(EXPRESSIONS, st.integers(at("1960-01-01"), at("2200-01-01")))
def test_it_names_the_minutes_that_its_definition_names(text: str, minute: int) -> None:
    cron = Cron.parse(text)
    for each in range(minute, minute + 500):
        assert cron.matches(each) == is_named(text, EPOCH + datetime.timedelta(minutes=each))


@given(EXPRESSIONS, st.integers(at("1990-01-01"), at("2100-01-01")))
@settings(max_examples=examples(80))
def test_the_next_and_the_last_one_are_those_that_a_search_finds(text: str, minute: int) -> None:
    cron, span = Cron.parse(text), 3 * 24 * 60
    ahead = [each for each in range(minute + 1, minute + span) if cron.matches(each)]
    assert list(itertools.takewhile(lambda each: each < minute + span, cron.after(minute))) == ahead
    behind = [each for each in range(minute - 1, minute - span, -1) if cron.matches(each)]
    assert list(itertools.takewhile(lambda each: each > minute - span, cron.before(minute))) == behind


@given(st.integers(at("1600-01-01"), at("2400-01-01")))
def test_a_date_is_that_of_a_calendar(minute: int) -> None:
    known = EPOCH + datetime.timedelta(minutes=minute)
    assert Cron.parse(f"{known.minute} {known.hour} {known.day} {known.month} *").matches(minute)
    assert not Cron.parse(f"{known.minute} {known.hour} {known.day % 28 + 1} {known.month} *").matches(minute)


def by_walking(cron: Cron, begin_s: int, end_s: int, offset: Offset) -> list[int]:
    """Whenever a wall shows more than it ever did, what lies in between is due."""
    found, highest = (
        list[int](),
        max((each + offset(each)) // 60 for each in range(begin_s - 2 * 86_400, begin_s + 1, 60)),
    )
    for now_s in range(begin_s + 60, end_s + 1, 60):
        shown = (now_s + offset(now_s)) // 60
        if any(cron.matches(each) for each in range(highest + 1, shown + 1)):
            found.append(now_s)
        highest = max(highest, shown)
    return found


CHANGES = {  # days in which clocks were changed
    "Europe/Berlin": ("2026-03-28", "2026-10-24"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),  # by half an hour
    "Pacific/Apia": ("2011-12-29", "2012-03-31"),  # which skipped a whole day
    "Africa/Casablanca": ("2026-02-14", "2026-03-21"),
    "UTC": ("2026-03-28", "2026-06-01"),
}


@given(EXPRESSIONS, st.sampled_from(ZONES), st.booleans(), st.integers(0, 1440))
@settings(max_examples=examples(50))
@pytest.mark.slow
def test_over_changes_of_the_clock_it_is_due_as_a_walk_through_time_finds(
    text: str, zone: str, is_second: bool, later: int
) -> None:
    cron, offset = Cron.parse(text), offset_of(zone)
    begin_s = 60 * (at(CHANGES[zone][is_second]) + later)
    end_s = begin_s + 2 * 86_400
    found, after_s = list[int](), begin_s
    while (after_s := next_due_s(cron, after_s, offset)) <= end_s:
        found.append(after_s)
    assert found == by_walking(cron, begin_s, end_s, offset)
    if found:
        assert last_due_s(cron, end_s, offset) == found[-1]
        assert last_due_s(cron, found[-1], offset) == found[-1]


def due(text: str, zone: str, after: str, many: int) -> list[str]:
    """In UTC."""
    found, after_s = list[str](), 60.0 * at(after)
    for _ in range(many):
        after_s = next_due_s(Cron.parse(text), after_s, offset_of(zone))
        found.append((EPOCH + datetime.timedelta(seconds=after_s)).strftime("%m-%d %H:%M"))
    return found


def test_a_time_that_is_skipped_runs_once_right_after_the_gap() -> None:
    days = due("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00", 3)
    assert days == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]
    quarters = due("*/15 * * * *", "Europe/Berlin", "2026-03-29T00:40", 3)
    assert quarters == ["03-29 00:45", "03-29 01:00", "03-29 01:15"]


def test_a_time_that_comes_twice_runs_once() -> None:
    assert due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == ["10-25 00:30", "10-26 01:30"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("@daily", "2026-11-16T00:00"),
        ("@hourly", "2026-11-15T19:00"),
        ("@weekly", "2026-11-22T00:00"),
        ("@monthly", "2026-12-01T00:00"),
        ("@Yearly", "2027-01-01T00:00"),
        ("0 2 * * mon-fri", "2026-11-16T02:00"),
        ("0 0 13 * fri", "2026-11-20T00:00"),  # the 13th, or a Friday
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 * * 7", "2026-11-22T00:00"),
        ("5,10-14/2 18 * * *", "2026-11-16T18:05"),
    ],
)
def test_what_people_write(text: str, first: str) -> None:
    assert next(Cron.parse(text).after(at("2026-11-15T18:51"))) == at(first)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "five fields"),
        ("0 2 * *", "five fields"),
        ("60 2 * * *", "from 0 to 59 as the minute"),
        ("0 24 * * *", "from 0 to 23 as the hour"),
        ("0 0 0 * *", "from 1 to 31"),
        ("0 0 * foo *", "jan, feb"),
        ("0 0 * * 8", "from 0 to 7"),
        ("0 0 * * fri-mon", "an ascending"),
        ("*/0 * * * *", "a step of at least 1"),
        ("5/10 * * * *", "5-59/10"),
        ("1,,2 * * * *", "the minute"),
        ("-1 * * * *", "the minute"),
        ("0 0 30 2 *", "a day of month that exists in one of the given months"),
        ("@reboot", "@hourly"),
        ("@dayly", "@daily[?]"),
        ("٣ * * * *", "the minute"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Cron.parse(text)
