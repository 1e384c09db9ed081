"""Numbers as people read them: SI suffixes, clock times, dollars, per cent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from twoshift.report.values import Axis, Kind

__all__ = ["caption", "display_unit", "format_number", "format_value", "tick_labels"]

_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MONEY = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
# beyond these a suffix says less than an exponent
_LARGEST, _SMALLEST = 1e15, 1e-4

# (from this many, what one of them is, its name)
_MS_UNITS = ((0.0, 1.0, "ms"), (1e3, 1e3, "s"), (3e5, 6e4, "min"), (1.08e7, 3.6e6, "h"))
_SECOND_UNITS = (
    (0.0, 1e-6, "µs"),
    (1e-3, 1e-3, "ms"),
    (1.0, 1.0, "s"),
    (181.0, 60.0, "min"),  # an axis that ends on a round three minutes stays in seconds; so for hours, days
    (10_801.0, 3600.0, "h"),
    (259_201.0, 86_400.0, "d"),
)


def _minus(text: str) -> str:
    return text.replace("-", "−") if "e" not in text else text


def format_number(value: float) -> str:
    """Three or four digits that matter, and an SI suffix from ten thousand up."""
    size = abs(value)
    if not math.isfinite(value):
        return "—"
    if size == 0:
        return "0"
    if size >= _LARGEST or size < _SMALLEST:
        return f"{value:.3g}"
    if size >= 9_999.5:
        return _minus(_suffixed(value, _SI))
    return _minus(f"{value:,.0f}" if size >= 100 else f"{value:.3g}")


def _suffixed(value: float, suffixes: Sequence[tuple[float, str]]) -> str:
    # the rounded number picks the suffix: 999,960 is 1M, not 1000k
    rounded = float(f"{value:.3g}")
    factor, suffix = next(pair for pair in suffixes if abs(rounded) >= pair[0])
    return f"{rounded / factor:.3g}{suffix}"


def _dollars(value: float) -> str:
    size = abs(value)
    sign = "−" if value < 0 else ""
    if size >= _LARGEST:
        return f"{sign}${size:.3g}"
    if size >= 99_950:
        return f"{sign}${_suffixed(size, _MONEY)}"
    if size >= 1000:
        return f"{sign}${size:,.0f}"
    return f"{sign}${size:.2f}" if size >= 0.1 or size == 0 else f"{sign}${size:.2g}"


def _clock(hours: float) -> str:
    minutes = round(abs(hours) * 60) if abs(hours) < 1e9 else 0
    sign = "−" if hours < 0 and minutes else ""
    if minutes > 48 * 60:
        return f"{sign}day {minutes // 1440 + 1} {minutes // 60 % 24:02d}:{minutes % 60:02d}"
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def display_unit(kind: Kind, top: float) -> tuple[float, str]:
    """What an axis that reaches `top` is counted in: (one of them in the axis's own numbers, its name)."""
    if kind == "share":
        return 0.01, "%"
    units = {"ms": _MS_UNITS, "seconds": _SECOND_UNITS}.get(kind)
    if units is None:
        return 1.0, ""
    # zero has no size of its own: it is written in the unit's first name
    size = top or 1.0
    return next((one, name) for least, one, name in reversed(units) if size >= least)


def format_value(value: float, axis: Axis) -> str:
    """One value with its unit, for tooltips and labels."""
    if not math.isfinite(value):
        return "—"
    if axis.kind == "usd":
        return _dollars(value)
    if axis.kind == "hours":
        return _clock(value)
    one, unit = display_unit(axis.kind, abs(value))
    unit = unit or axis.unit
    return f"{format_number(value / one)} {unit}".rstrip()


def caption(axis: Axis, top: float) -> str:
    """The axis's label with its unit: what the tick labels leave out."""
    unit = "" if axis.scale == "log" else display_unit(axis.kind, top)[1]
    unit = unit or axis.unit
    if axis.label and unit:
        return f"{axis.label} ({unit})"
    return axis.label or unit


def tick_labels(ticks: Sequence[float], axis: Axis, top: float) -> tuple[str, ...]:
    """Labels that agree with each other: one suffix and one number of decimals along an axis."""
    if axis.kind == "hours":
        return tuple(_hour_label(tick, ticks) for tick in ticks)
    if axis.scale == "log":
        return tuple(_log_label(tick, axis.kind) for tick in ticks)
    one, _ = display_unit(axis.kind, top)
    prefix = "$" if axis.kind == "usd" else ""
    return _even_labels([tick / one for tick in ticks], prefix, _MONEY if prefix else _SI)


def _log_label(tick: float, kind: Kind) -> str:
    """Far apart on a log axis, each tick has a unit of its own."""
    if kind == "seconds":
        one, unit = next((one, unit) for _, one, unit in reversed(_SECOND_UNITS) if tick >= one or unit == "µs")
        return f"{format_number(tick / one)} {unit}"
    label = format_value(tick, Axis(kind=kind))
    return label.removesuffix(".00") if kind == "usd" else label


def _hour_label(tick: float, ticks: Sequence[float]) -> str:
    days = max(ticks) - min(ticks) > 48
    return f"day {tick / 24 + 1:g}" if days else _clock(tick)


def _even_labels(ticks: Sequence[float], prefix: str, suffixes: Sequence[tuple[float, str]]) -> tuple[str, ...]:
    top = max((abs(tick) for tick in ticks), default=0.0)
    gaps = [after - before for before, after in pairwise(ticks) if after > before]
    step = min(gaps, default=top or 1.0)
    if top >= _LARGEST or step < 1e-6:
        return tuple(prefix + f"{tick:.6g}" for tick in ticks)
    factor, suffix = (1.0, "") if top < 10_000 else next(pair for pair in suffixes if top >= pair[0])
    places = min(6, max(0, math.ceil(-math.log10(step / factor) - 1e-9)))
    if prefix and places == 1:
        places = 2  # nobody writes $0.5
    return tuple(_even(tick / factor, places, prefix, suffix) for tick in ticks)


def _even(value: float, places: int, prefix: str, suffix: str) -> str:
    written = f"{abs(value):,.{places}f}"
    if not written.strip("0.,"):
        return f"{prefix}0"
    return f"{'−' if value < 0 else ''}{prefix}{written}{suffix}"
