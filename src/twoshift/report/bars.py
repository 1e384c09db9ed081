"""Labelled bars beside each other, for a few values of one measure."""

from __future__ import annotations

from collections.abc import Sequence

from twoshift.report.formats import format_value
from twoshift.report.plot import NARROW_PX, WIDE_PX, empty, svg, wrap_tooltip
from twoshift.report.points import drawable
from twoshift.report.svg import element, escape, shorten, text_width
from twoshift.report.values import Axis, Bar, Figure

__all__ = ["bar_chart"]

_ROW_PX = {WIDE_PX: 40.0, NARROW_PX: 52.0}
_BAR_PX = 22.0
_TOP_PX = 26.0
_BOLD_PX = 13.0  # bold letters are wider: measured as if they were larger
_LABEL_CHARS, _NOTE_CHARS = 34, 40


def bar_chart(title: str, bars: Sequence[Bar], axis: Axis, *, note: str = "") -> Figure:
    """Horizontal bars from zero, each with its value at its end; always linear, since bars are lengths."""
    shown = [bar for bar in bars if drawable(bar.value)]

    def draw(width: int) -> str:
        if not shown:
            return svg(width, 80, title, *empty(width, 44))
        height = _TOP_PX + _ROW_PX[width] * len(shown)
        return svg(width, height, title, _caption(axis), *_rows(shown, axis, width))

    return Figure(title, note, draw(WIDE_PX), draw(NARROW_PX))


def _caption(axis: Axis) -> str:
    text = f"{axis.label} ({axis.unit})" if axis.label and axis.unit else axis.label or axis.unit
    return element("text", escape(text), x=2, y=13, class_="caption") if text else ""


def _rows(shown: Sequence[Bar], axis: Axis, width: int) -> list[str]:
    wide = width == WIDE_PX
    lo, hi = min(0.0, *(bar.value for bar in shown)), max(0.0, *(bar.value for bar in shown))
    left = max(text_width(shorten(bar.label, _LABEL_CHARS)) for bar in shown) + 20 if wide else 2.0
    # values stand beyond the ends of the bars: keep room for the longest
    room = max(text_width(_value(bar, axis), _BOLD_PX) for bar in shown) + 20
    full = max(60.0, width - left - room)
    # nearly nothing is drawn as nothing: dividing by it would overflow
    share = full / (hi - lo) if hi - lo > 1e-140 else 0.0
    zero = left - lo * share
    rows: list[str] = []
    for index, bar in enumerate(shown):
        top = _TOP_PX + _ROW_PX[width] * index + (4.0 if wide else 20.0)
        label_at = (left - 10, top + 15.5, "end") if wide else (2.0, top - 6, "start")
        place = (zero + min(0.0, bar.value) * share, top, abs(bar.value) * share)
        rows.append(_row(bar, axis, place, label_at))
    bottom = _TOP_PX + _ROW_PX[width] * len(shown)
    base = element("line", x1=zero, x2=zero, y1=_TOP_PX - 2, y2=bottom, class_="base")
    # labels above narrow bars would be struck through by the line
    return [*rows, base] if wide else rows


def _value(bar: Bar, axis: Axis) -> str:
    return " ".join(filter(None, (format_value(bar.value, axis), shorten(bar.note, _NOTE_CHARS))))


def _row(bar: Bar, axis: Axis, place: tuple[float, float, float], label_at: tuple[float, float, str]) -> str:
    start, top, length = place
    x, y, anchor = label_at
    # one measure, one colour: only a tone that was asked for stands out
    tone = "blue" if bar.tone == "auto" else bar.tone
    note = element("tspan", escape(shorten(bar.note, _NOTE_CHARS)), dx=7, class_="quiet") if bar.note else ""
    value = escape(format_value(bar.value, axis))
    return wrap_tooltip(
        f"{bar.label}: {_value(bar, axis)}",
        element("rect", x=start, y=top, width=max(1.0, length), height=_BAR_PX, rx=2, class_=f"bar {tone}"),
        element("text", escape(shorten(bar.label, _LABEL_CHARS)), x=x, y=y, class_="name", text_anchor=anchor),
        element("text", value, note, x=start + length + 8, y=top + 15.5, class_="value"),
    )
