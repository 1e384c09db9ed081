"""The hours of the week in which a job may run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["Hours"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY, _WEEK = 24 * 60, 7 * 24 * 60
_NAME = "|".join(_DAYS)
_PART = re.compile(
    rf"(?:(?P<first>{_NAME})(?:\s*-\s*(?P<last>{_NAME}))?)?\s*"
    r"(?:(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<to>\d{1,2}:\d{2}))?",
    re.IGNORECASE,
)
_ACCEPTED = "hours such as 22:00-06:00, or hours and days such as 'mon-fri 22:00-06:00, sat, sun'"


@dataclass(frozen=True, slots=True)
class Hours:
    """Spans of a week, in minutes from Monday 00:00.

    A span that ends before it begins continues in the next day or week.
    """

    spans: tuple[tuple[int, int], ...]
    text: str

    @classmethod
    def parse(cls, given: str, field: str = "hours") -> Hours:
        """Parse `22:00-06:00` or `mon-fri 22:00-06:00, sat, sun`; a span belongs to the day on which it begins."""
        spans = list[tuple[int, int]]()
        for part in given.split(","):
            found = _PART.fullmatch(part.strip())
            made = None if found is None or not part.strip() else _span(found)
            if made is None:
                raise InvalidInput(field, given, _ACCEPTED)
            days, (begin, end) = made
            spans += [(_DAY * day + begin, (_DAY * day + end) % _WEEK) for day in days]
        return cls(tuple(dict.fromkeys(spans)), ", ".join(" ".join(part.split()) for part in given.split(",")))

    def __str__(self) -> str:
        return self.text

    def contains(self, minute: int) -> bool:
        """Whether a minute of the week is in one of the spans."""
        return any(
            begin <= minute < end if begin < end else minute >= begin or minute < end for begin, end in self.spans
        )


def _span(found: re.Match[str]) -> tuple[list[int], tuple[int, int]] | None:
    """The days of a part, and from when to when; the end of one over midnight lies in the day after. None: no span."""
    days = list(_days(found["first"], found["last"]))
    if found["from"] is None:
        return days, (0, _DAY)
    begin, end = _minute(found["from"]), _minute(found["to"])
    if begin is None or end is None or begin in (end, _DAY):
        return None
    return days, (begin, end if begin < end else end + _DAY)


def _days(first: str | None, last: str | None) -> Iterator[int]:
    if first is None:
        yield from range(7)
        return
    at, until = (_DAYS.index(name.lower()) for name in (first, last or first))
    yield from (day % 7 for day in range(at, (until if at <= until else until + 7) + 1))


def _minute(text: str) -> int | None:
    hours, minutes = map(int, text.split(":"))
    made = 60 * hours + minutes
    return made if minutes < 60 and made <= _DAY else None
