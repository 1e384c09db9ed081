"""What a report is made of: frozen values, no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Axis",
    "Bar",
    "Bins",
    "Block",
    "Card",
    "Dots",
    "Figure",
    "Kind",
    "Mark",
    "Sample",
    "Section",
    "Series",
    "Tone",
]

Kind = Literal["number", "hours", "ms", "seconds", "usd", "share"]
Tone = Literal["auto", "blue", "orange", "teal", "pink", "sky", "muted"]


@dataclass(frozen=True, slots=True)
class Axis:
    """How one direction of a chart reads; `lo` and `hi` override what the data says.

    `kind` names what the numbers are: hours of a day (7.5 is 07:30), milliseconds, seconds, dollars,
    or a share where 1 is everything (shown as per cent).
    """

    label: str = ""
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    kind: Kind = "number"
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Named points of a line or of one band of a stack; `step` holds each value until the next point."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    tone: Tone = "auto"
    step: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A reference line: `axis="y"` lies across the chart at a y value, `axis="x"` stands at an x value."""

    value: float
    label: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True, slots=True)
class Bar:
    """One labelled value; the note is printed after the value."""

    label: str
    value: float
    note: str = ""
    tone: Tone = "auto"


@dataclass(frozen=True, slots=True)
class Sample:
    """Raw values to be binned."""

    name: str
    values: Sequence[float]
    tone: Tone = "auto"


@dataclass(frozen=True, slots=True)
class Dots:
    """Named points, each with its own name for the tooltip."""

    name: str
    points: Sequence[tuple[float, float, str]]
    tone: Tone = "auto"


@dataclass(frozen=True, slots=True)
class Bins:
    """Values already counted: `counts[i]` lie between `edges[i]` and `edges[i + 1]`."""

    name: str
    edges: Sequence[float]
    counts: Sequence[float]
    tone: Tone = "auto"


@dataclass(frozen=True, slots=True)
class Card:
    """One big number; `state` puts a sign before the note, so that colour is never the only cue."""

    label: str
    value: str
    note: str = ""
    state: Literal["plain", "good", "bad"] = "plain"


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn chart, in two widths: the page shows the one that fits."""

    title: str
    note: str
    wide: str
    narrow: str
    legend: tuple[tuple[str, str], ...] = ()  # (tone, name), shown where there is no room for direct labels


@dataclass(frozen=True, slots=True)
class Block:
    """Finished, trusted markup. Only this package makes them."""

    html: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence, and blocks; two figures that follow each other in a tuple stand side by side."""

    title: str
    blocks: Sequence[Figure | Block | tuple[Figure, ...]]
    intro: str = ""
