"""Whether a schedule fires now, with missed runs and runs that overlap the last one."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from twoshift.policy.cron import Cron
from twoshift.policy.due import Offset, last_due_s, next_due_s

__all__ = ["Fire", "Meeting", "Missed", "Overlap", "Wait", "meet", "trigger"]

LATE_S = 60.0  # up to which a run is on time
_MOST_COUNTED = 1000
_MOST_WAITING = 100


class Missed(enum.StrEnum):
    """What happens to runs whose time passed while the server was down."""

    SKIP = "skip"
    ONCE = "once"  # one run for all of them


class Overlap(enum.StrEnum):
    """What happens to a run if the job of the last run has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL = "cancel"  # the last one


class Meeting(enum.StrEnum):
    """What to do with a run that is due."""

    SUBMIT = "submit"
    SKIP = "skip"
    WAIT = "wait"
    CANCEL = "cancel"  # the last one, and then submit


@dataclass(frozen=True, slots=True)
class Wait:
    """No run is due."""

    until_s: int


@dataclass(frozen=True, slots=True)
class Fire:
    """One run or none for all times up to `last_s`."""

    last_s: int
    run: bool
    missed: int  # that have no run of their own

    @property
    def missed_shown(self) -> str:
        """Text about missed runs, for users."""
        many = f"{self.missed:,}" if self.missed < _MOST_COUNTED else f"{_MOST_COUNTED:,} or more"
        return f"missed runs: {many}" + ("; this run replaces them" if self.run else "")


def trigger(cron: Cron, since_s: float, now_s: float, offset: Offset, missed: Missed) -> Fire | Wait:
    """What to do about the times after `since_s`, which are not decided yet."""
    due_s = next_due_s(cron, since_s, offset)
    if due_s > now_s:
        return Wait(due_s)
    last_s, many = last_due_s(cron, now_s, offset), 0
    while due_s <= last_s and many < _MOST_COUNTED:
        due_s, many = next_due_s(cron, due_s, offset), many + 1
    on_time = now_s - last_s <= LATE_S
    return Fire(last_s, on_time or missed is Missed.ONCE, many - (on_time and many < _MOST_COUNTED))


def meet(overlap: Overlap, last_goes: bool, waiting: int) -> Meeting:
    """What to do with a run, if this many runs wait before it."""
    if not last_goes and not waiting:
        return Meeting.SUBMIT
    match overlap:
        case Overlap.SKIP:
            return Meeting.SKIP
        case Overlap.QUEUE:
            return Meeting.WAIT if waiting < _MOST_WAITING else Meeting.SKIP
        case Overlap.CANCEL:
            return Meeting.CANCEL
