"""From data to pixels: an axis's domain, its ticks, and the map between."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twoshift.report.formats import caption, display_unit, tick_labels
from twoshift.report.points import drawable
from twoshift.report.ticks import duration_ticks, hour_step, log_ticks, multiples, nice_step
from twoshift.report.values import Axis

__all__ = ["Scale", "domain", "plan_scale"]

# an axis ends on its last tick rather than just short of it
_SNAP = 0.04


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis laid out over pixels; `start` is where `lo` is drawn."""

    axis: Axis
    lo: float
    hi: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    caption: str
    start: float = 0.0
    end: float = 1.0

    def __call__(self, value: float) -> float:
        """The pixel of a value; what lies beyond an end is drawn on it."""
        if self.axis.scale == "log":
            low, high = math.log(self.lo), math.log(self.hi)
            share = (math.log(value) - low) / (high - low) if value > 0 else 0.0
        else:
            share = (value - self.lo) / (self.hi - self.lo)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def over(self, start: float, end: float) -> Scale:
        return replace(self, start=start, end=end)

    def holds(self, value: float) -> bool:
        return drawable(value) and self.lo <= value <= self.hi


def domain(axis: Axis, values: Iterable[float], zero: bool) -> tuple[float, float]:
    """The range to show: the data's, from zero where that hides nothing, never empty."""
    log = axis.scale == "log"
    known = [value for value in values if drawable(value, log)]
    lo, hi = (min(known), max(known)) if known else ((1.0, 10.0) if log else (0.0, 1.0))
    if not log and zero and 0 < lo < 0.5 * hi:
        lo = 0.0
    if axis.lo is not None and drawable(axis.lo, log):
        lo, hi = axis.lo, max(hi, axis.lo)
    if axis.hi is not None and drawable(axis.hi, log):
        lo, hi = min(lo, axis.hi), axis.hi
    return _widened_log(lo, hi) if log else _widened(lo, hi, zero)


def _widened(lo: float, hi: float, zero: bool) -> tuple[float, float]:
    size = max(abs(lo), abs(hi))
    if hi - lo > 1e-9 * size and hi - lo > 1e-140:
        return lo, hi
    if size < 1e-130:
        return 0.0, 1.0
    if zero:
        return min(0.0, lo * 1.2), max(0.0, hi * 1.2)
    return lo - 0.1 * size, hi + 0.1 * size


def _widened_log(lo: float, hi: float) -> tuple[float, float]:
    return (lo, hi) if hi > lo * (1 + 1e-6) else (lo / 2, hi * 2)


def _step(axis: Axis, lo: float, hi: float, most: int) -> float:
    if axis.kind == "hours":
        return hour_step((hi - lo) / most)
    # round in the unit shown: an axis in minutes has no tick at 166.7 s
    one, _ = display_unit(axis.kind, max(abs(lo), abs(hi)))
    return one * nice_step((hi - lo) / most / one)


def _grown(axis: Axis, lo: float, hi: float, step: float, reach: float) -> tuple[float, float]:
    """Ends moved out to the next multiple of `step` where that costs at most `reach` of the axis."""
    below, above = step * math.floor(lo / step + 1e-9), step * math.ceil(hi / step - 1e-9)
    limit = reach * (hi - lo)
    return (
        below if axis.lo is None and lo - below <= limit else lo,
        above if axis.hi is None and above - hi <= limit else hi,
    )


def _log_ticks(axis: Axis, lo: float, hi: float, most: int) -> tuple[float, ...]:
    return duration_ticks(lo, hi, most) if axis.kind == "seconds" else log_ticks(lo, hi, most)


def plan_scale(axis: Axis, values: Iterable[float], most: int, zero: bool, round_ends: bool) -> Scale:
    """Chooses domain and ticks; pixels come later, since margins depend on the labels."""
    lo, hi = domain(axis, values, zero)
    if axis.scale == "log":
        ticks = _log_ticks(axis, lo, hi, most)
    else:
        # rounded ends may waste half the height: a finer step wastes less
        steps = [_step(axis, lo, hi, count) for count in range(most, most + (3 if round_ends else 1))]
        ends = [(*_grown(axis, lo, hi, step, 4.0 if round_ends else _SNAP), step) for step in steps]
        lo, hi, step = min(ends, key=lambda end: end[1] - end[0])
        ticks = multiples(lo, hi, step)
    top = max(abs(lo), abs(hi))
    return Scale(axis, lo, hi, ticks, tick_labels(ticks, axis, top), caption(axis, top))
