"""Charts of values over an axis: lines, and areas laid on each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from twoshift.report.formats import format_value
from twoshift.report.plot import WIDE_PX, Plot, empty, figure, make_plot, tones, wrap_tooltip
from twoshift.report.points import Points, clean, nearest, stack, stepped, thin
from twoshift.report.svg import element, path_of
from twoshift.report.values import Axis, Figure, Mark, Series

__all__ = ["area_chart", "line_chart"]

_STRIPS = {True: 100, False: 50}  # hover targets in a wide and in a narrow chart


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A series that has something to draw."""

    name: str
    tone: str
    step: bool
    points: Points


def _drawn(series: Sequence[Series], x: Axis, y: Axis) -> list[_Drawn]:
    chosen = tones([one.tone for one in series])
    known = [
        _Drawn(one.name, tone, one.step, clean(one, x.scale == "log", y.scale == "log"))
        for one, tone in zip(series, chosen, strict=True)
    ]
    return [one for one in known if one.points]


def line_chart(
    title: str, series: Sequence[Series], x: Axis, y: Axis, *, marks: Sequence[Mark] = (), note: str = ""
) -> Figure:
    """One line a series, named at its end; `marks` are reference lines such as the SLO."""
    shown = _drawn(series, x, y)
    names = [one.name for one in shown] if len(shown) > 1 else []

    def draw(width: int) -> list[str]:
        if not shown:
            return empty(width)
        plot = make_plot(width, (x, y), _extent([one.points for one in shown]), marks, names)
        paths = [thin(_within(plot, one.points), plot.columns) for one in shown]
        lines = [_line(plot, one, path, filled=not names) for one, path in zip(shown, paths, strict=True)]
        ends = [(one.tone, one.name, path[-1][1]) for one, path in zip(shown, paths, strict=True) if path]
        labels = plot.end_labels(ends) if names else ""
        around = [point for path in paths for point in path]
        return [plot.grid(), *lines, plot.marks(marks, around), labels, *_hovers(plot, shown, plot.y)]

    return figure(title, note, [(one.tone, one.name) for one in shown], draw)


def area_chart(
    title: str, series: Sequence[Series], x: Axis, y: Axis, *, marks: Sequence[Mark] = (), note: str = ""
) -> Figure:
    """Series laid on each other, the first at the bottom; a missing value counts as zero."""
    # parts of a whole mean nothing on a log axis, nor cut off above zero
    upright = Axis(y.label, y.unit, "linear", y.kind, 0.0, y.hi)
    shown = _drawn(series, x, upright)
    edges = stack([one.points for one in shown])
    names = [one.name for one in shown] if len(shown) > 1 else []

    def draw(width: int) -> list[str]:
        if not shown:
            return empty(width)
        plot = make_plot(width, (x, upright), _extent(edges), marks, names)
        paths = [thin(_within(plot, edge), plot.columns) for edge in edges]
        ground = [(at, plot.y.start) for at, _ in (paths[0][:1] + paths[0][-1:])]
        step = any(one.step for one in shown)
        bands = [_band(*one, step) for one in zip(shown, [ground, *paths], paths, strict=False)]
        labels = plot.end_labels(_middles(shown, [ground, *paths])) if names else ""
        return [plot.grid(), *bands, plot.marks(marks, paths[-1]), labels, *_hovers(plot, shown, None)]

    return figure(title, note, [(one.tone, one.name) for one in shown], draw)


def _extent(paths: Sequence[Points]) -> tuple[list[float], list[float]]:
    """The smallest and largest of each direction: all that a scale needs to know."""
    xs = [point[0] for path in paths for point in (path[0], path[-1])]
    ys = [pick(y for _, y in path) for path in paths for pick in (min, max)]
    return xs, ys


def _within(plot: Plot, points: Points) -> Points:
    return plot.pixels(point for point in points if plot.x.holds(point[0]))


def _line(plot: Plot, one: _Drawn, path: Points, filled: bool) -> str:
    if len(path) < 2:
        dots = [element("circle", cx=x, cy=y, r=3.5, class_=f"bar {one.tone}") for x, y in path]
        return wrap_tooltip(one.name, *dots)
    outline = path_of(stepped(path) if one.step else path)
    base = plot.y(max(0.0, plot.y.lo)) if plot.y.axis.scale == "linear" else plot.y.start
    under = f"{outline}V{base:.1f}H{path[0][0]:.1f}Z"
    shade = element("path", d=under, class_=f"shade {one.tone}") if filled else ""
    return wrap_tooltip(one.name, shade, element("path", d=outline, class_=f"line {one.tone}"))


def _band(one: _Drawn, below: Points, above: Points, step: bool) -> str:
    if not above:
        return ""
    lower, upper = (stepped(below), stepped(above)) if step else (below, above)
    around = path_of([*upper, *reversed(lower)]) + "Z"
    return wrap_tooltip(one.name, element("path", d=around, class_=f"band {one.tone}"))


def _middles(shown: Sequence[_Drawn], edges: Sequence[Points]) -> list[tuple[str, str, float]]:
    """Where the names go: the middle of each band at the right edge, the top band first."""
    ends = [
        (one.tone, one.name, (below[-1][1] + above[-1][1]) / 2)
        for one, (below, above) in zip(shown, pairwise(edges), strict=True)
        if below and above
    ]
    return ends[::-1]


def _hovers(plot: Plot, shown: Sequence[_Drawn], height: Callable[[float], float] | None) -> list[str]:
    """Strips over the data's own points, or evenly among them where there are many."""
    longest = max((one.points for one in shown), key=len)
    stride = -(-len(longest) // _STRIPS[plot.width == WIDE_PX])
    centres = [x for x, _ in longest[stride // 2 :: stride] if plot.x.holds(x)]
    pixels = [plot.x(x) for x in centres]
    bounds = [(before + after) / 2 for before, after in pairwise(pixels)]
    strips: list[str] = []
    for x, at, left, right in zip(centres, pixels, [plot.x.start, *bounds], [*bounds, plot.x.end], strict=False):
        values = [(one, nearest(one.points, x)[1]) for one in shown]
        dots = [(one.tone, height(value)) for one, value in values] if height else []
        strips.append(plot.hover(at, left, right, _reading(plot, x, values, stacked=height is None), dots))
    return strips


def _reading(plot: Plot, x: float, values: Sequence[tuple[_Drawn, float]], stacked: bool) -> str:
    lines = [format_value(x, plot.x.axis)]
    # a stack reads from the top down
    ordered = values[::-1] if stacked else values
    lines += [f"{one.name}: {format_value(value, plot.y.axis)}" for one, value in ordered]
    if stacked and len(values) > 1:
        lines.append(f"total: {format_value(sum(max(0.0, value) for _, value in values), plot.y.axis)}")
    return "\n".join(lines)
