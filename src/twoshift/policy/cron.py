"""Cron expressions: the minutes of a wall clock that they name.

A minute is counted from 1970-01-01 00:00 on that wall; `policy.due` says when a wall in some time zone shows it.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from twoshift.errors import InvalidInput

__all__ = ["Cron"]

_DAY = 24 * 60
_SEARCH_DAYS = 150_000  # a calendar repeats itself after 400 years
_DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS = {name: number for number, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
)}  # fmt: skip
_WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),  # 7 is Sunday, too
)


@dataclass(frozen=True, slots=True)
class Cron:
    """The five fields of a cron expression.

    As in Vixie cron, a day must match both day fields; if neither begins with `*`, it must match one of them.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @classmethod
    def parse(cls, given: str, field: str = "cron") -> Cron:
        """Parse an expression such as `0 2 * * mon-fri` or `@daily`; raises InvalidInput."""
        words = _SHORT.get(given.strip().lower(), given).split()
        if given.strip().startswith("@") and len(words) == 1:
            near = difflib.get_close_matches(given.strip().lower(), _SHORT, 1, 0.3)
            raise InvalidInput(
                field, given, f"one of {', '.join(_SHORT)}{f'; did you mean {near[0]}?' if near else ''}"
            )
        if len(words) != len(_FIELDS) or len(given) > 1000:
            raise InvalidInput(
                field, given, "five fields: minute hour day-of-month month day-of-week, such as 0 2 * * *"
            )
        sets = [_parsed(word, each, field) for word, each in zip(words, _FIELDS, strict=True)]
        minutes, hours, days, months, weekdays = sets
        either = not words[2].startswith("*") and not words[4].startswith("*")
        made = cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            frozenset(days),
            frozenset(months),
            frozenset(each % 7 for each in weekdays),
            either,
        )
        if not either and not any(day <= _DAYS_IN[month - 1] for day in days for month in months):
            raise InvalidInput(field, given, "a day of month that exists in one of the given months")
        return made

    def matches(self, minute: int) -> bool:
        """Whether the expression matches this minute."""
        day, rest = divmod(minute, _DAY)
        return self._has(day) and rest // 60 in self.hours and rest % 60 in self.minutes

    def after(self, minute: int) -> Iterator[int]:
        """Matching minutes after this one, in order."""
        first, rest = divmod(minute, _DAY)
        for day in range(first, first + _SEARCH_DAYS):
            if self._has(day):
                times = self._times()
                begin = bisect_right(times, rest) if day == first else 0
                yield from (day * _DAY + each for each in times[begin:])

    def before(self, minute: int) -> Iterator[int]:
        """Matching minutes before this one, latest first."""
        last, rest = divmod(minute, _DAY)
        for day in range(last, last - _SEARCH_DAYS, -1):
            if self._has(day):
                times = self._times()
                end = bisect_left(times, rest) if day == last else len(times)
                yield from (day * _DAY + each for each in reversed(times[:end]))

    def _times(self) -> list[int]:
        return [60 * hour + minute for hour in self.hours for minute in self.minutes]

    def _has(self, day: int) -> bool:
        _, month, of_month = _date(day)
        if month not in self.months:
            return False
        by_month, by_week = of_month in self.days, (day + 4) % 7 in self.weekdays  # day 0 was a Thursday
        return (by_month or by_week) if self.either else (by_month and by_week)


def _date(day: int) -> tuple[int, int, int]:
    """Year, month and day of month, in years that begin in March, so that the odd day is the last."""
    era, of_era = divmod(day + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    of_month = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return 400 * era + year + (month <= 2), month, of_month


def _parsed(word: str, of: _Field, field: str) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        first, last = _span(span, of, field, part)
        if slash and (not re.fullmatch(r"[0-9]{1,3}", step) or int(step) < 1):
            raise InvalidInput(field, part, "a step of at least 1 after the slash, such as */5")
        if slash and span != "*" and "-" not in span:
            raise InvalidInput(field, part, f"a range before the slash, such as {span}-{of.most}/{step}")
        found.update(range(first, last + 1, int(step) if slash else 1))
    return found


def _span(span: str, of: _Field, field: str, part: str) -> tuple[int, int]:
    if span == "*":
        return of.least, min(of.most, 6) if of.name == "day of week" else of.most
    first, dash, last = span.partition("-")
    begin = _number(first, of, field, part)
    end = _number(last, of, field, part) if dash else begin
    if end < begin:
        two = f"{begin}-{of.most},{of.least}-{end}"
        raise InvalidInput(field, part, f"an ascending {of.name} range; to wrap around, write two ranges: {two}")
    return begin, end


def _number(word: str, of: _Field, field: str, part: str) -> int:
    if (named := of.names.get(word.lower())) is not None:
        return named
    if not re.fullmatch(r"[0-9]{1,2}", word) or not of.least <= int(word) <= of.most:
        names = f", or {', '.join(of.names)}" if of.names else ""
        raise InvalidInput(field, part, f"a number from {of.least} to {of.most} as the {of.name}{names}")
    return int(word)
