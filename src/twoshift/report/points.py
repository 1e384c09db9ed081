"""Points before they are drawn: cleaned, thinned, stacked, looked up."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from twoshift.report.values import Series

__all__ = ["Points", "clean", "drawable", "nearest", "stack", "stepped", "thin"]

Points = list[tuple[float, float]]

# ratios of larger numbers overflow, and no chart shows them
_BOUND = 1e150


def drawable(value: float, log: bool = False) -> bool:
    return math.isfinite(value) and abs(value) < _BOUND and (not log or value > 1 / _BOUND)


def clean(series: Series, log_x: bool = False, log_y: bool = False) -> Points:
    """The points that can be drawn, in order of x."""
    pairs = zip(map(float, series.xs), map(float, series.ys), strict=True)
    kept = [(x, y) for x, y in pairs if drawable(x, log_x) and drawable(y, log_y)]
    kept.sort(key=lambda point: point[0])
    return kept


def thin(points: Points, columns: int) -> Points:
    """At most about two points a column, among them each column's lowest and highest, and both ends."""
    if len(points) <= 2 * columns:
        return points
    left, right = points[0][0], points[-1][0]
    share = columns / (right - left) if right > left else 0.0
    kept: set[int] = {0, len(points) - 1}
    column, low, high = 0, 0, 0
    for index, (x, y) in enumerate(points):
        here = int((x - left) * share)
        if here != column:
            kept.update((low, high))
            column, low, high = here, index, index
        elif y < points[low][1]:
            low = index
        elif y > points[high][1]:
            high = index
    kept.update((low, high))
    return [points[index] for index in sorted(kept)]


def stepped(points: Points) -> Points:
    """The same points with a corner before each: a value holds until the next."""
    corners = [corner for before, after in pairwise(points) for corner in (before, (after[0], before[1]))]
    return corners + points[-1:]


def nearest(points: Points, x: float) -> tuple[float, float]:
    """The point closest to `x`; there must be one."""
    after = bisect_left(points, x, key=lambda point: point[0])
    around = points[max(0, after - 1) : after + 1] or points[-1:]
    return min(around, key=lambda point: abs(point[0] - x))


def _at(points: Points, xs: Sequence[float]) -> list[float]:
    """Values at `xs`, in order, by straight lines between points; nothing outside them."""
    values: list[float] = []
    index = 0
    for x in xs:
        while index < len(points) and points[index][0] < x:
            index += 1
        if index == len(points) or (index == 0 and points[0][0] > x):
            values.append(0.0)
        elif points[index][0] == x:
            values.append(points[index][1])
        else:
            (x0, y0), (x1, y1) = points[index - 1], points[index]
            values.append(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return values


def stack(bands: Iterable[Points]) -> list[Points]:
    """The upper edges of the bands laid on each other, bottom first; negative values count as zero."""
    known = list(bands)
    xs = sorted({x for points in known for x, _ in points})
    total = [0.0] * len(xs)
    edges: list[Points] = []
    for points in known:
        total = [below + max(0.0, value) for below, value in zip(total, _at(points, xs), strict=True)]
        edges.append(list(zip(xs, total, strict=True)))
    return edges
