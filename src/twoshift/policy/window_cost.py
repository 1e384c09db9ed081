"""Cost of a stream's windows, learned from committed windows."""

from __future__ import annotations

from twoshift.policy.freshness import WindowCost

__all__ = ["ArrivalRate", "WindowCostLearner"]

_KEPT = 0.9  # of the weight of what was seen before, by each window
_PRIOR_ROWS = (1.0, 1000.0)  # at which what was known at the start counts as seen
_LEAST_ROW_S = 1e-9
_SPREAD = 1e-3  # of the sizes seen, below which they do not tell the fixed cost from that of a row


class WindowCostLearner:
    """A line through the rows and seconds of windows; recent windows count more."""

    def __init__(self, prior: WindowCost) -> None:
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0
        self._cost = prior
        for rows in _PRIOR_ROWS:
            self._add(rows, prior.seconds(rows))

    @property
    def cost(self) -> WindowCost:
        """The learned cost."""
        return self._cost

    def observe(self, rows: int, seconds: float) -> None:
        """A window of this many rows took this long, beside the window before it."""
        if rows < 1 or not 0 <= seconds < float("inf"):
            return
        self._weight, self._rows, self._seconds = _KEPT * self._weight, _KEPT * self._rows, _KEPT * self._seconds
        self._squares, self._products = _KEPT * self._squares, _KEPT * self._products
        self._add(float(rows), seconds)
        self._cost = self._fitted()

    def _add(self, rows: float, seconds: float) -> None:
        self._weight += 1
        self._rows += rows
        self._seconds += seconds
        self._squares += rows * rows
        self._products += rows * seconds

    def _fitted(self) -> WindowCost:
        """Least squares, with neither cost below 0."""
        mean_rows, mean_s = self._rows / self._weight, self._seconds / self._weight
        spread = self._squares / self._weight - mean_rows**2
        if spread <= _SPREAD * mean_rows**2:  # windows of one size: what is fixed stays what it was
            fixed_s = min(self._cost.fixed_s, mean_s)
            return WindowCost(fixed_s, max(_LEAST_ROW_S, (mean_s - fixed_s) / mean_rows))
        row_s = (self._products / self._weight - mean_rows * mean_s) / spread
        row_s = min(max(row_s, _LEAST_ROW_S), max(_LEAST_ROW_S, mean_s / mean_rows))
        return WindowCost(max(0.0, mean_s - row_s * mean_rows), row_s)


class ArrivalRate:
    """Rows that arrive per second, over a recent period."""

    def __init__(self, over_s: float) -> None:
        self._over_s, self._rate, self._at_s = over_s, 0.0, None

    @property
    def rows_per_s(self) -> float:
        """Arrival rate at the last observation."""
        return self._rate

    def saw(self, rows: int, now_s: float) -> None:
        """This many rows since the last call; a clock that goes back counts as standing still."""
        if self._at_s is None:
            self._at_s = now_s
            return
        passed_s = max(0.0, now_s - self._at_s)
        kept = max(0.0, 1 - passed_s / self._over_s)
        self._rate = kept * self._rate + rows / self._over_s
        self._at_s = max(self._at_s, now_s)
