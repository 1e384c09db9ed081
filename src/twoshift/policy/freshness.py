"""How long the windows of a stream are: as long as its freshness objective allows and as its curve pays for.

A window that is closed at `t` is committed at about `t + fixed + rows * row`. Its oldest row is fresh enough if that is
within the objective of its arrival; a longer window shares the fixed cost among more rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["CatchUp", "Close", "Collect", "FreshnessPolicy", "OpenWindow", "WindowCost"]

_MARGIN = 0.8  # of the objective: what is predicted to be inside it, so that the tail is inside it, too
_PAID_SHARE = 0.05  # of a window's time that a longer one could still save: as at the knee of calls
_LONGEST_S = 30.0  # of work in one window, where the objective is shorter: what a crash may cost
_MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class WindowCost:
    """Predicts the seconds of a window from its rows."""

    fixed_s: float  # to begin and to commit it, whatever it holds
    row_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.fixed_s) and self.fixed_s >= 0 and math.isfinite(self.row_s) and self.row_s > 0):
            accepted = "finite numbers of seconds: fixed_s of at least 0, and row_s above 0"
            raise InvalidInput("cost", (self.fixed_s, self.row_s), accepted)

    def seconds(self, rows: float) -> float:
        """Seconds from closing a window to its commit, if no other window is before it."""
        return self.fixed_s + rows * self.row_s

    @property
    def paid_rows(self) -> float:
        """Rows from which on a longer window saves hardly anything: the fixed cost is a small share of it."""
        return self.fixed_s * (1 - _PAID_SHARE) / (_PAID_SHARE * self.row_s)


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Collected rows that are not scored yet."""

    rows: int
    oldest_s: float  # when its oldest row arrived at the source, on the clock of `now_s`


@dataclass(frozen=True, slots=True)
class Collect:
    """Wait for more rows."""

    until_s: float | None  # None: until some arrive
    most_rows: int  # that it may still take


@dataclass(frozen=True, slots=True)
class Close:
    """Score the window now."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Time and rows until a stream is up to date again."""

    rows: float
    seconds: float  # inf: rows arrive faster than they are scored
    rows_per_s: float  # that are scored, at the size of windows that it has then


class FreshnessPolicy:
    """Decides when to close a window."""

    def __init__(self, objective_s: float) -> None:
        if not (math.isfinite(objective_s) and objective_s > 0):
            raise InvalidInput("fresh", objective_s, "a duration above 0")
        self.objective_s = objective_s

    def most_rows(self, cost: WindowCost) -> int:
        """Largest window: limited by the cost curve, and by the work that a crash may lose."""
        longest_s = max(_LONGEST_S, self.objective_s)
        bounded = min(cost.paid_rows, longest_s / cost.row_s, _MOST_ROWS)
        return max(1, math.ceil(bounded))

    def decide(
        self, window: OpenWindow, cost: WindowCost, rate_rows_s: float, busy_until_s: float, now_s: float
    ) -> Collect | Close:
        """Close the window or wait; `busy_until_s` is the predicted end of the windows before it."""
        left = self.most_rows(cost) - window.rows
        if window.rows == 0:
            return Collect(None, left)
        if left <= 0:
            return Close()
        # Before the windows in work are done nothing is won by closing it: rows that come until then share its cost
        until_s = max(self._latest_s(window, cost, rate_rows_s, now_s), busy_until_s)
        return Close() if until_s <= now_s else Collect(until_s, left)

    def _latest_s(self, window: OpenWindow, cost: WindowCost, rate_rows_s: float, now_s: float) -> float:
        """The latest time to close the window so that its oldest row, with later arrivals, is fresh enough."""
        due_s = window.oldest_s + _MARGIN * self.objective_s
        free_s = due_s - cost.seconds(window.rows) - now_s
        return now_s + free_s / (1 + max(0.0, rate_rows_s) * cost.row_s)

    def catch_up(self, backlog_rows: float, rate_rows_s: float, cost: WindowCost) -> CatchUp:
        """Time to work off a backlog while more rows arrive."""
        rows = self.most_rows(cost)
        rate = rows / cost.seconds(rows)
        spare = rate - max(0.0, rate_rows_s)
        seconds = 0.0 if backlog_rows <= 0 else backlog_rows / spare if spare > 0 else math.inf
        return CatchUp(max(0.0, backlog_rows), seconds, rate)
