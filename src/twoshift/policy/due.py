"""When a cron expression is due in a time zone, over changes of its clocks.

A wall time that is skipped is due right after the gap, all of a gap together; one that comes twice is due the first
time.
"""

from __future__ import annotations

from collections.abc import Callable

from twoshift.policy.cron import Cron

__all__ = ["Offset", "last_due_s", "next_due_s"]

Offset = Callable[[int], int]  # UTC seconds -> seconds that the wall is ahead of them
_DAY_S = 86_400


def next_due_s(cron: Cron, after_s: float, offset: Offset) -> int:
    """The first due time after this one."""
    whole_s = int(after_s // 1)
    for minute in cron.after((whole_s + offset(whole_s)) // 60):
        due_s = _shown_at(60 * minute, offset)
        if due_s > after_s:
            return due_s
    raise AssertionError("a parsed cron expression must match a minute within 400 years")


def last_due_s(cron: Cron, at_s: float, offset: Offset) -> int:
    """The last due time up to this one."""
    whole_s = int(at_s // 1)
    for minute in cron.before((whole_s + offset(whole_s) + _DAY_S) // 60):  # the wall may have been ahead already
        due_s = _shown_at(60 * minute, offset)
        if due_s <= at_s:
            return due_s
    raise AssertionError("a parsed cron expression must match a minute within 400 years")


def _shown_at(wall_s: int, offset: Offset) -> int:
    """When the wall clock first shows this minute, or a later one."""
    before, after = offset(wall_s - _DAY_S), offset(wall_s + _DAY_S)
    known = [wall_s - each for each in (before, after) if offset(wall_s - each) == each]
    return min(known) if known else _changed_at(wall_s - after, wall_s - before, offset)


def _changed_at(low_s: int, high_s: int, offset: Offset) -> int:
    """When the clocks were set forward."""
    before = offset(low_s)
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        low_s, high_s = (middle_s, high_s) if offset(middle_s) == before else (low_s, middle_s)
    return high_s
