"""Hours of the day in which a job may run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["Hours"]

_SPAN = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*")
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Hours:
    """From one minute of the day to another, over midnight where the end lies before the beginning."""

    begin: int
    end: int

    @classmethod
    def parse(cls, given: str, field: str = "hours") -> Hours:
        """`22:00-06:00`; raises InvalidInput."""
        found = _SPAN.fullmatch(given)
        if found:
            begin, end = (60 * int(found[k]) + int(found[k + 1]) for k in (1, 3))
            if max(int(found[2]), int(found[4])) < 60 and begin < _DAY and end <= _DAY and begin != end:
                return cls(begin, end)
        raise InvalidInput(field, given, "two times of the day, such as 22:00-06:00")

    def __str__(self) -> str:
        return "-".join(f"{each // 60:02d}:{each % 60:02d}" for each in (self.begin, self.end))

    def contains(self, minute: int) -> bool:
        """Whether a minute of the day lies in them."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end
