"""A measured model, and what follows from its curve for an SLO."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twoshift.policy.cost import CallCost
    from twoshift.policy.fit import Fit
    from twoshift.policy.plan.row import RowSize
    from twoshift.policy.plan.table import Cap
    from twoshift.policy.profile import Profile
    from twoshift.policy.threads import ThreadPlan
    from twoshift.ports import RuntimeInfo

__all__ = ["QUANTILE", "HeldOut", "Measurement", "Point"]

QUANTILE = 0.9  # as the lane policy predicts


@dataclass(frozen=True, slots=True)
class Point:
    """One size of call: what its calls took, and what the curve says."""

    rows: int
    tokens: int
    longest: int
    calls: int
    measured_s: float  # the median
    spread_s: float  # how far half of the calls are from it
    predicted_s: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A size that the fit has not seen."""

    rows: int
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """How far off the prediction was, as a share."""
        return abs(self.predicted_s / self.measured_s - 1)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured model and what follows from its curve."""

    info: RuntimeInfo
    fit: Fit
    row: RowSize
    points: tuple[Point, ...]
    held_out: HeldOut | None
    slo_s: float
    price_usd: float
    max_rows: int  # no larger call was to be measured
    knee: int | None
    cap: Cap
    profile: str
    replaced: Profile | None = None  # what was stored under that name before
    threads: ThreadPlan | None = None  # of a call, by its rows; None where that is the library's to say

    @property
    def cost(self) -> CallCost:
        """The curve."""
        return self.fit.cost

    def call_s(self, rows: int, quantile: float = 0.5) -> float:
        """What a call of so many typical rows takes."""
        return self.cost.seconds(self.row.call(rows), quantile)

    def usd_per_million(self, rows: int) -> float:
        """Dollars for a million typical rows in calls of that size, on a device that does nothing else."""
        return 1e6 * self.call_s(rows) / rows * self.price_usd / 3600

    @property
    def background_rows(self) -> int:
        """Rows of the largest background call; 1 where not even one fits."""
        return max(1, self.cap.batch)

    @property
    def noise(self) -> float:
        """How much calls of one size differ, as a share."""
        return statistics.median(p.spread_s / p.measured_s for p in self.points)

    @property
    def largest_rows(self) -> int:
        """Rows of the largest call of typical rows that was measured."""
        return max(p.rows for p in self.typical_points())

    def typical_points(self) -> list[Point]:
        """The points with rows about as long as the typical one."""
        off = {p: abs(p.tokens / p.rows - self.row.tokens) for p in self.points}
        return [p for p in self.points if off[p] <= min(off.values()) + self.row.tokens / 4]
