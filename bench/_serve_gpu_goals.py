"""What a line of the table has shown, and what is asked of it."""

from __future__ import annotations

from typing import Any

import msgspec
from _load import Report

MOST_TIMEOUTS = 0.01  # 504, of replies
_ALWAYS = ("504 of all replies", "lost, or neither 200, 503 nor 504")  # asked of every load


class Goal(msgspec.Struct, frozen=True):
    """A figure with its bounds; without one it is only shown."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool:
        """By the figure as it is, not as it is rounded."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def bounds(self) -> str:
        """For people; empty where there is none."""
        least = "" if self.least is None else f">= {number(self.least)}"
        most = "" if self.most is None else f"<= {number(self.most)}"
        return " and ".join(each for each in (least, most) if each)

    def shown(self, judged: bool) -> str:
        """The figure, its goal, and whether it is met."""
        said = f"{self.what}: {number(self.value)}"
        if not self.bounds:
            return said
        if not judged:
            return f"{said} (goal on a GPU {self.bounds})"
        return f"{said} (goal {self.bounds}: {'met' if self.is_met else 'MISSED'})"


class Outcome(msgspec.Struct, kw_only=True):
    """Of one line; `failed` says why there is none."""

    line: str
    about: str
    goals: list[Goal] = []
    figures: dict[str, Any] = {}
    failed: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it is there, with all of its goals."""
        return not self.failed and all(goal.is_met for goal in self.goals)

    def shown(self, judged: bool) -> str:
        """Lines for people."""
        head = f"{self.line:11} {self.about}"
        if self.failed:
            return f"{head}\n{'':14}FAILED: {self.failed}"
        return "\n".join([head, *(f"{'':14}{goal.shown(judged)}" for goal in self.goals)])

    def in_short(self, judged: bool) -> str:
        """One line: what is asked of it; of a line without a goal, its first figures."""
        asked = [goal for goal in self.goals if goal.bounds and (goal.what not in _ALWAYS or not goal.is_met)]
        shown = "; ".join(goal.shown(judged) for goal in asked or self.goals[:2])
        verdict = "failed" if self.failed else "ran" if not judged or not asked else "met" if self.is_met else "MISSED"
        return f"{self.line:11} {verdict:7} {self.failed[:200] or shown}"


def replies_goals(report: Report) -> list[Goal]:
    """What must be so whatever the load is: refusals are 503 at once, and every request has its reply."""
    replies = max(1, sum(report.statuses.values()))
    others = sum(count for status, count in report.statuses.items() if status not in (0, 200, 503, 504))
    return [
        Goal(_ALWAYS[0], report.statuses.get(504, 0) / replies, most=MOST_TIMEOUTS),
        Goal(_ALWAYS[1], report.lost + report.statuses.get(0, 0) + others, most=0),
    ]


def number(value: float) -> str:
    """Three digits, or whole with commas."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
