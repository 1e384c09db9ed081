"""How many rows of a job may fail."""

from __future__ import annotations

import re

import msgspec

from twoshift.errors import InvalidInput

__all__ = ["ErrorBudget"]


class ErrorBudget(msgspec.Struct, frozen=True):
    """How many rows of a job may fail: a count, or a share of those seen."""

    count: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, given: str) -> ErrorBudget:
        """`100` or `1%`; raises InvalidInput."""
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", given)
        if found and found[2] and float(found[1]) <= 100:
            return cls(share=float(found[1]) / 100)
        if found and not found[2] and "." not in found[1]:
            return cls(count=int(found[1]))
        raise InvalidInput("max_errors", given, "a number of rows such as 100, or a share of the rows such as 1%")

    def is_spent(self, errors: int, rows: int, least_rows: int) -> bool:
        """Whether so many errors among so many rows are too many; a share is judged once there are some rows."""
        if self.count is not None:
            return errors > self.count
        return self.share is not None and rows >= least_rows and errors > self.share * rows
