"""Points against a line on which both sides would be equal."""

from __future__ import annotations

from collections.abc import Sequence

from twoshift.report.formats import format_value
from twoshift.report.plot import Plot, empty, figure, make_plot, tones, wrap_tooltip
from twoshift.report.points import drawable
from twoshift.report.svg import element, path_of
from twoshift.report.values import Axis, Dots, Figure

__all__ = ["scatter_chart"]


def scatter_chart(title: str, series: Sequence[Dots], x: Axis, y: Axis, *, note: str = "") -> Figure:
    """Each point with its name; a dashed line is where x and y are the same."""
    chosen = tones([one.tone for one in series])
    log = (x.scale == "log", y.scale == "log")
    shown = [
        (one.name, tone, [each for each in one.points if drawable(each[0], log[0]) and drawable(each[1], log[1])])
        for one, tone in zip(series, chosen, strict=True)
    ]
    points = [each for _, _, found in shown for each in found]

    def draw(width: int) -> list[str]:
        if not points:
            return empty(width)
        both = [value for at, height, _ in points for value in (at, height)]
        plot = make_plot(width, (x, y), (both, both), [], [])
        low, high = max(plot.x.lo, plot.y.lo), min(plot.x.hi, plot.y.hi)
        line = element("path", d=path_of(plot.pixels([(low, low), (high, high)])), class_="mark")
        return [plot.grid(), line, *(_dot(plot, tone, each) for _, tone, found in shown for each in found)]

    return figure(title, note, [(tone, name) for name, tone, found in shown if found], draw)


def _dot(plot: Plot, tone: str, point: tuple[float, float, str]) -> str:
    x, y, name = point
    ((at, height),) = plot.pixels([(x, y)])
    sides = ((plot.x.axis, x), (plot.y.axis, y))
    told = "\n".join([name, *(f"{axis.label}: {format_value(value, axis)}" for axis, value in sides)])
    return wrap_tooltip(told, element("circle", cx=at, cy=height, r=4.0, class_=f"bar {tone}", fill_opacity="0.75"))
