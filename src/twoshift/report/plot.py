"""The frame that charts share: margins, gridlines, axes, reference marks, labels at line ends, hover strips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle

from twoshift.report.points import Points
from twoshift.report.scale import Scale, plan_scale
from twoshift.report.svg import element, escape, shorten, text_width
from twoshift.report.values import Axis, Figure, Mark, Tone

__all__ = ["NARROW_PX", "WIDE_PX", "Plot", "empty", "figure", "make_plot", "svg", "tones", "wrap_tooltip"]

WIDE_PX = 860
NARROW_PX = 400
_HEIGHT_PX = {WIDE_PX: 300, NARROW_PX: 250}
_LABEL_CHARS = 24
_LINE_PX = 15.0

_ABOVE_PX, _BELOW_PX = 30.0, 46.0  # room for a caption
_CYCLE = ("blue", "orange", "teal", "pink", "sky")


def tones(wanted: Sequence[Tone]) -> list[str]:
    """Each chosen tone as it is; each `auto` the next that nobody chose."""
    free = cycle([tone for tone in _CYCLE if tone not in wanted] or _CYCLE)
    chosen: list[str] = []
    for tone in wanted:
        chosen.append(next(free) if tone == "auto" else tone)
    return chosen


def svg(width: float, height: float, title: str, *parts: str) -> str:
    # no <title> here: it would be the tooltip of the whole chart
    return element("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title, class_="chart")


def figure(title: str, note: str, legend: Sequence[tuple[str, str]], draw: Callable[[int], Sequence[str]]) -> Figure:
    """Draws the chart for a wide and for a narrow place."""
    drawn = {width: svg(width, _HEIGHT_PX[width], title, *draw(width)) for width in (WIDE_PX, NARROW_PX)}
    named = tuple((tone, name) for tone, name in legend) if len(legend) > 1 else ()
    return Figure(title, note, drawn[WIDE_PX], drawn[NARROW_PX], named)


def empty(width: int, y: float | None = None) -> list[str]:
    middle = _HEIGHT_PX[width] / 2 if y is None else y
    return [element("text", "no data", x=width / 2, y=middle, class_="quiet", text_anchor="middle")]


def wrap_tooltip(text: str, *parts: str, class_: str = "") -> str:
    title = f"<title>{escape(text)}</title>"
    return element("g", title, *parts, class_=class_) if class_ else element("g", title, *parts)


@dataclass(frozen=True, slots=True)
class Plot:
    """A laid-out chart: two scales over one box of pixels."""

    x: Scale
    y: Scale
    width: int

    def pixels(self, points: Iterable[tuple[float, float]]) -> Points:
        return [(self.x(x), self.y(y)) for x, y in points]

    @property
    def columns(self) -> int:
        return max(1, int(self.x.end - self.x.start))

    def grid(self) -> str:
        """Gridlines and tick labels, drawn first so that data lies on them."""
        x, y = self.x, self.y
        parts: list[str] = []
        for tick, label in zip(y.ticks, y.labels, strict=True):
            at = y(tick)
            line = "base" if tick == max(0.0, y.lo) and y.axis.scale == "linear" else "grid"
            parts.append(element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_=line))
            parts.append(_text(label, x.start - 8, at + 4, "tick", "end"))
        for tick, label in zip(x.ticks, x.labels, strict=True):
            at = x(tick)
            parts.append(element("line", x1=at, x2=at, y1=y.start, y2=y.start + 4, class_="base"))
            parts.append(_text(label, at, y.start + 18, "tick", "middle"))
        return element("g", *parts) + self._captions()

    def _captions(self) -> str:
        x, y = self.x, self.y
        above = _text(y.caption, 2, y.end - 14, "caption") if y.caption else ""
        below = _text(x.caption, (x.start + x.end) / 2, y.start + 38, "caption", "middle") if x.caption else ""
        return above + below

    def marks(self, marks: Sequence[Mark], around: Points) -> str:
        """Reference lines; a label goes to the side where the data is further away."""
        across = [mark for mark in marks if mark.axis == "y" and self.y.holds(mark.value)]
        standing = [mark for mark in marks if mark.axis == "x" and self.x.holds(mark.value)]
        standing.sort(key=lambda mark: mark.value)
        drawn = [self._across(mark, around) for mark in across]
        taken = list(around)
        for mark in standing:
            drawn.append(self._standing(mark, taken))
        return "".join(drawn)

    def _across(self, mark: Mark, around: Points) -> str:
        at, left, right = self.y(mark.value), self.x.start, self.x.end
        label = shorten(mark.label, 40)
        wide = text_width(label) + 8
        text_at = at - 6 if at - self.y.end > 18 else at + 15
        rooms = {
            "start": _clearance(around, left, left + wide, text_at - 4),
            "end": _clearance(around, right - wide, right, text_at - 4),
        }
        anchor = max(rooms, key=lambda side: rooms[side])
        line = element("line", x1=left, x2=right, y1=at, y2=at, class_="mark")
        text = _text(label, left + 6 if anchor == "start" else right - 4, text_at, "mark-label", anchor)
        return wrap_tooltip(mark.label, line, text)

    def _standing(self, mark: Mark, taken: Points) -> str:
        """An upright line; its label takes the first free row from the top, and adds itself to `taken`."""
        at, top, bottom = self.x(mark.value), self.y.end, self.y.start
        label = shorten(mark.label, 32)
        wide = text_width(label) + 8
        left = at if at + wide < self.x.end else at - wide
        rows = [top + 11 + _LINE_PX * row for row in range(int((bottom - top) / _LINE_PX) - 1)]
        height = next((row for row in rows if _clearance(taken, left - 4, left + wide, row - 4) > 13), rows[0])
        taken += [(left + share * wide, height - 4) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        line = element("line", x1=at, x2=at, y1=top, y2=bottom, class_="mark")
        anchor = "start" if left == at else "end"
        text = _text(label, at + 6 if left == at else at - 6, height, "mark-label", anchor)
        return wrap_tooltip(mark.label, line, text)

    def end_labels(self, ends: Sequence[tuple[str, str, float]]) -> str:
        """Names beside the right edge, each at its own height in pixels as far as they do not overlap."""
        if self.width == NARROW_PX or not ends:
            return ""
        heights = _spread([at for _, _, at in ends], self.y.end, self.y.start)
        x = self.x.end
        parts: list[str] = []
        for (tone, name, at), height in zip(ends, heights, strict=True):
            leader = f"M{x + 3:.1f},{at:.1f}L{x + 12:.1f},{height:.1f}H{x + 16:.1f}"
            parts.append(element("path", d=leader, class_=f"leader {tone}"))
            parts.append(_text(shorten(name, _LABEL_CHARS), x + 20, height + 4, "name"))
        return "".join(parts)

    def hover(self, at: float, left: float, right: float, text: str, dots: Sequence[tuple[str, float]]) -> str:
        """An unseen strip that shows a hairline, a dot on each line and a tooltip under the pointer."""
        top, bottom = self.y.end, self.y.start
        strip = element("rect", x=left, y=top, width=max(0.5, right - left), height=bottom - top)
        hair = element("line", x1=at, x2=at, y1=top, y2=bottom)
        circles = [element("circle", cx=at, cy=y, r=3.5, class_=tone) for tone, y in dots]
        return wrap_tooltip(text, strip, hair, *circles, class_="hit")


def _text(text: str, x: float, y: float, class_: str, anchor: str = "start") -> str:
    if anchor == "start":
        return element("text", escape(text), x=x, y=y, class_=class_)
    return element("text", escape(text), x=x, y=y, class_=class_, text_anchor=anchor)


def _clearance(points: Points, left: float, right: float, y: float) -> float:
    return min((abs(at - y) for x, at in points if left <= x <= right), default=1e6)


def _spread(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights moved as little as keeps them a line apart and inside; order is kept."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = [heights[index] for index in order]
    for index in range(1, len(placed)):
        placed[index] = max(placed[index], placed[index - 1] + _LINE_PX)
    limit = bottom
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - _LINE_PX
    if placed and placed[0] < top:
        # more names than room: let them run on downwards rather than off the top
        placed = [max(at, top + _LINE_PX * index) for index, at in enumerate(placed)]
    result = [0.0] * len(placed)
    for index, at in zip(order, placed, strict=True):
        result[index] = at
    return result


def make_plot(
    width: int,
    axes: tuple[Axis, Axis],
    data: tuple[Sequence[float], Sequence[float]],
    marks: Sequence[Mark],
    names: Sequence[str],
) -> Plot:
    """Lays out a chart of these x and y values; `names` will stand at the right edge of a wide one."""
    xs = [*data[0], *(mark.value for mark in marks if mark.axis == "x")]
    ys = [*data[1], *(mark.value for mark in marks if mark.axis == "y")]
    wide = width == WIDE_PX
    y = plan_scale(axes[1], ys, 5 if wide else 4, zero=True, round_ends=True)
    x = plan_scale(axes[0], xs, 9 if wide else 5, zero=False, round_ends=False)
    # half of the first and of the last tick label hangs over the ends of the axis
    hangs = [text_width(label) / 2 + 4 for label in x.labels] or [4.0]
    left = max(*(text_width(label) + 14 for label in y.labels), hangs[0], 14.0)
    named = [text_width(shorten(name, _LABEL_CHARS)) + 26 for name in names] if wide else []
    right = width - max(*named, hangs[-1], 8.0)
    top = _ABOVE_PX if y.caption else 12.0
    bottom = _HEIGHT_PX[width] - (_BELOW_PX if x.caption else 28.0)
    return Plot(x.over(left, right), y.over(bottom, top), width)
