"""How often each value occurs: one sample as blocks, several as outlines over each other."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from twoshift.report.formats import display_unit, format_number, format_value
from twoshift.report.plot import WIDE_PX, Plot, empty, figure, make_plot, tones, wrap_tooltip
from twoshift.report.points import Points, drawable, stepped
from twoshift.report.scale import domain
from twoshift.report.svg import element, escape, path_of, shorten, text_width
from twoshift.report.ticks import nice_step
from twoshift.report.values import Axis, Bins, Figure, Mark, Sample

__all__ = ["bin_samples", "histogram"]

_MOST_BINS = 50


def histogram(
    title: str,
    data: Sequence[Sample | Bins],
    x: Axis,
    y: Axis | None = None,
    *,
    marks: Sequence[Mark] = (),
    note: str = "",
) -> Figure:
    """How often each value occurs; samples share their bins, several lie over each other."""
    chosen = tones([one.tone for one in data])
    binned = [(one, tone) for one, tone in zip(_binned(data, x), chosen, strict=True) if any(one.counts)]
    upright = y or Axis("count")

    def draw(width: int) -> list[str]:
        if not binned:
            return empty(width)
        edges = [edge for one, _ in binned for edge in (one.edges[0], one.edges[-1])]
        counts = [0.0, *(count for one, _ in binned for count in one.counts)]
        plot = make_plot(width, (x, upright), (edges, counts), marks, [])
        around = [point for one, _ in binned for point in plot.pixels(_corners(one))]
        if len(binned) == 1:
            return [plot.grid(), _blocks(plot, *binned[0]), plot.marks(marks, around)]
        names = _peak_names(plot, [one for one, _ in binned]) if width == WIDE_PX else []
        # marks keep clear of the names over the peaks
        taken = [(x + share * half, y - 4) for x, y, half, _ in names for share in (-1, -0.5, 0, 0.5, 1)]
        outlines = [_outline(plot, one, tone) for one, tone in binned]
        return [plot.grid(), *outlines, plot.marks(marks, around + taken), *map(_name, names), *_hovers(plot, binned)]

    return figure(title, note, [(tone, one.name) for one, tone in binned], draw)


def _binned(data: Sequence[Sample | Bins], x: Axis) -> list[Bins]:
    samples = [one for one in data if isinstance(one, Sample)]
    counted = iter(bin_samples(samples, x))
    return [next(counted) if isinstance(one, Sample) else _checked(one, x) for one in data]


def _checked(bins: Bins, x: Axis) -> Bins:
    """Bins that cannot be drawn are left out, one by one."""
    if len(bins.edges) != len(bins.counts) + 1:
        raise ValueError(
            f"{bins.name}: {len(bins.edges)} edges for {len(bins.counts)} counts; expected {len(bins.counts) + 1} edges"
        )
    edges = list(map(float, bins.edges))
    if not all(drawable(edge, x.scale == "log") for edge in edges) or edges != sorted(edges):
        return Bins(bins.name, (0.0, 1.0), (0.0,), bins.tone)
    counts = tuple(float(count) if drawable(float(count)) else 0.0 for count in bins.counts)
    return Bins(bins.name, edges, counts, bins.tone)


def bin_samples(samples: Sequence[Sample], x: Axis) -> list[Bins]:
    """Counts of each sample over one common set of round edges; the last bin includes its upper edge."""
    log = x.scale == "log"
    kept = [[float(value) for value in one.values if drawable(float(value), log)] for one in samples]
    lo, hi = domain(x, (value for values in kept for value in values), zero=False)
    most = min(_MOST_BINS, max(6, math.ceil(3 * max(map(len, kept), default=0) ** (1 / 3))))
    edges = _log_edges(lo, hi, most) if log else _round_edges(lo, hi, most, x)
    result: list[Bins] = []
    for one, values in zip(samples, kept, strict=True):
        counts = [0.0] * (len(edges) - 1)
        for value in values:
            if edges[0] <= value <= edges[-1]:
                counts[min(bisect_right(edges, value) - 1, len(counts) - 1)] += 1
        result.append(Bins(one.name, edges, counts, one.tone))
    return result


def _round_edges(lo: float, hi: float, most: int, x: Axis) -> list[float]:
    # round in the unit the axis shows, as its ticks are
    one, _ = display_unit(x.kind, max(abs(lo), abs(hi)))
    step = one * nice_step((hi - lo) / most / one)
    first, last = math.floor(lo / step), math.ceil(hi / step)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def _log_edges(lo: float, hi: float, most: int) -> list[float]:
    inner = [lo * (hi / lo) ** (index / most) for index in range(1, most)]
    return [lo, *inner, hi]


def _bin_reading(plot: Plot, bins: Bins, index: int) -> str:
    low, high = (format_value(bins.edges[at], plot.x.axis) for at in (index, index + 1))
    return f"{low} to {high}: {format_number(bins.counts[index])}"


def _blocks(plot: Plot, bins: Bins, tone: str) -> str:
    parts: list[str] = []
    for index, count in enumerate(bins.counts):
        left, right = plot.x(bins.edges[index]), plot.x(bins.edges[index + 1])
        top = plot.y(count)
        if count > 0 and right > left:
            wide = max(0.6, right - left - 1)
            block = element("rect", x=left + 0.5, y=top, width=wide, height=plot.y.start - top, class_=f"bar {tone}")
            parts.append(wrap_tooltip(_bin_reading(plot, bins, index), block))
    return "".join(parts)


def _corners(bins: Bins) -> Points:
    """The upper outline: each count from its bin's left edge, down to the ground at the end."""
    # empty bins at the ends are left out: a line along the ground says nothing
    filled = [index for index, count in enumerate(bins.counts) if count]
    first, last = filled[0], filled[-1]
    starts = list(zip(bins.edges, bins.counts, strict=False))[first : last + 1]
    return [(bins.edges[first], 0.0), *starts, (bins.edges[last + 1], 0.0)]


def _outline(plot: Plot, bins: Bins, tone: str) -> str:
    d = path_of(stepped(plot.pixels(_corners(bins))))
    shade = element("path", d=d + "Z", class_=f"overlay {tone}")
    return wrap_tooltip(bins.name, shade, element("path", d=d, class_=f"line {tone}"))


def _peak_names(plot: Plot, binned: Sequence[Bins]) -> list[tuple[float, float, float, str]]:
    """(middle, baseline, half width, name) over each peak, lifted where two would overlap."""
    placed: list[tuple[float, float, float, str]] = []
    for one in sorted(binned, key=lambda bins: max(bins.counts)):
        at = one.counts.index(max(one.counts))
        name = shorten(one.name, 30)
        half = text_width(name) / 2
        middle = (plot.x(one.edges[at]) + plot.x(one.edges[at + 1])) / 2
        middle = min(max(middle, plot.x.start + half), plot.x.end - half)
        height = plot.y(one.counts[at]) - 7
        for other, other_height, other_half, _ in placed:
            if abs(other - middle) < half + other_half + 8 and abs(other_height - height) < 15:
                height = other_height - 15
        placed.append((middle, height, half, name))
    return placed


def _name(name: tuple[float, float, float, str]) -> str:
    return element("text", escape(name[3]), x=name[0], y=name[1], class_="peak", text_anchor="middle")


def _hovers(plot: Plot, binned: Sequence[tuple[Bins, str]]) -> list[str]:
    edges = max((one.edges for one, _ in binned), key=len)
    strips: list[str] = []
    for low, high in pairwise(edges):
        left, right = plot.x(low), plot.x(high)
        middle = (low + high) / 2
        lines = [f"{format_value(low, plot.x.axis)} to {format_value(high, plot.x.axis)}"]
        for one, _ in binned:
            at = bisect_right(one.edges, middle) - 1
            if 0 <= at < len(one.counts):
                lines.append(f"{one.name}: {format_number(one.counts[at])}")
        strips.append(plot.hover((left + right) / 2, left, right, "\n".join(lines), []))
    return strips
