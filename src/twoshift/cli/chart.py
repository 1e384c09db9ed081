"""A line chart in the terminal, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twoshift.cli.output import pretty

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["LogChart", "Series"]

_ASCII = str.maketrans({"─": "-", "│": "|", "┤": "+", "┬": "+", "└": "+", "●": "*", "○": "o", "┄": "-", "┊": ":"})
_MARGIN = 9  # columns for the labels of the y axis
_Grid = list[list[tuple[str, str]]]  # lines of (character, style)


@dataclass(frozen=True, slots=True)
class Series:
    """A curve y(x), its mark and its style."""

    name: str
    mark: str
    style: str
    y: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    cells: int

    def cell(self, value: float) -> int:
        if self.high <= self.low:
            return 0
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return min(self.cells - 1, max(0, round(part * (self.cells - 1))))

    def value(self, cell: int) -> float:
        return self.low * (self.high / self.low) ** (cell / (self.cells - 1))


@dataclass(frozen=True, slots=True)
class LogChart:
    """Curves over batch sizes, with a horizontal objective and a vertical mark where there are any."""

    xs: Sequence[int]
    series: Sequence[Series]
    level: tuple[str, float] | None = None
    at: tuple[str, int] | None = None
    width: int = 80
    height: int = 13
    unicode: bool = True

    def render(self) -> Text:
        """The chart, its axes and a legend, in lines of at most `width`."""
        from rich.text import Text

        x = _Axis(min(self.xs), max(self.xs), max(20, self.width - _MARGIN - 2))
        ys = [s.y(b) for s in self.series for b in (min(self.xs), max(self.xs))]
        if self.level:
            ys.append(self.level[1])
        y = _Axis(min(ys) / 1.1, max(ys) * 1.1, self.height)
        out = Text()
        for i, line in enumerate(self._grid(x, y)):
            label = _tick(y.value(self.height - 1 - i)) if i % 3 == 0 else ""
            out.append(self._safe(f"{label:>{_MARGIN - 1}} {'┤' if label else '│'}"), "dim")
            for character, style in line:
                out.append(self._safe(character), style)
            out.append("\n")
        for line in (*self._x_axis(x), self._legend()):
            out.append(self._safe(line) + "\n", "dim")
        out.rstrip()
        return out

    def _grid(self, x: _Axis, y: _Axis) -> _Grid:
        grid: _Grid = [[(" ", "")] * x.cells for _ in range(y.cells)]
        if self.at:
            for line in grid:
                line[x.cell(self.at[1])] = ("┊", "yellow")
        if self.level:
            grid[-1 - y.cell(self.level[1])] = [("┄", "red")] * x.cells
        for series in self.series:
            for column in range(x.cells):
                batch = max(1, round(x.value(column)))
                grid[-1 - y.cell(series.y(batch))][column] = (series.mark, series.style)
        return grid

    def _x_axis(self, x: _Axis) -> tuple[str, str]:
        rule, labels = ["─"] * x.cells, [" "] * (x.cells + 1)
        taken = -1
        for batch in self.xs:
            column, text = x.cell(batch), str(batch)
            start = min(max(0, column - len(text) // 2), len(labels) - len(text))
            rule[column] = "┬"
            if start > taken:
                labels[start : start + len(text)] = text
                taken = start + len(text)
        return " " * _MARGIN + "└" + "".join(rule), " " * (_MARGIN + 1) + "".join(labels).rstrip()

    def _legend(self) -> str:
        marks = [f"{s.mark} {s.name}" for s in self.series]
        if self.level:
            marks.append(f"┄ {self.level[0]}")
        if self.at:
            marks.append(f"┊ {self.at[0]}")
        return " " * (_MARGIN + 1) + "   ".join(marks)

    def _safe(self, text: str) -> str:
        return text if self.unicode else text.translate(_ASCII)


def _tick(value: float) -> str:
    return pretty(value, 3) if value < 1e6 else f"{value:.1e}"
