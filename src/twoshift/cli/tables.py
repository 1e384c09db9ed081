"""Tables that fit: text columns are wrapped at spaces, and where that is not enough, a row becomes a block of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

__all__ = ["Column", "FittingTable", "column"]

_GAP = 3  # between two columns
_EDGES = 2
_LEAST_TEXT = 12  # of a wrapped column: narrower ones are hard to read


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether its cells are texts (to the left) that may be wrapped."""

    name: str
    is_text: bool
    wraps: bool

    def widest(self, cells: Sequence[str]) -> int:
        """Where nothing is wrapped."""
        return max(len(self.name), *map(len, cells), 0)

    def narrowest(self, cells: Sequence[str]) -> int:
        """Numbers and names stay in one piece, texts are wrapped at spaces."""
        longest = max((len(word) for word in self.name.split()), default=0)
        if not self.wraps:
            return max(longest, *map(len, cells), 0)
        words = [word for cell in cells for word in cell.split()]
        return max(longest, *map(len, words), min(_LEAST_TEXT, self.widest(cells)), 0)


def column(name: str) -> Column:
    """As tables are written: '<' before a name sets it to the left, '<<' in one piece, too."""
    return Column(name.lstrip("<"), is_text=name.startswith("<"), wraps=name.startswith("<") and name[:2] != "<<")


@dataclass(frozen=True, slots=True)
class FittingTable:
    """Rows of cells under headings, as wide as there is room; no cell is cut."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str | None = None
    less: Sequence[str] = ()  # columns that may be left out, the first first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for count in range(len(self.less) + 1):
            shown = self._without(self.less[:count])
            widths = shown.widths(options.max_width)
            if widths is not None:
                yield shown._table(widths)
                if count:
                    yield Text(
                        f"Columns not shown: {', '.join(self.less[:count])}. Use --json or a wider terminal "
                        "to see them."
                    )
                return
        yield from self._blocks()

    def _without(self, names: Sequence[str]) -> FittingTable:
        kept = [place for place, each in enumerate(self.columns) if each.name not in names]
        rows = [[row[place] for place in kept] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in kept], rows=rows, less=())

    def widths(self, room: int) -> list[int] | None:
        """Of the columns; None where they cannot stand side by side."""
        cells = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        least = [each.narrowest(own) for each, own in zip(self.columns, cells, strict=True)]
        found = [each.widest(own) for each, own in zip(self.columns, cells, strict=True)]
        over = sum(found) + _GAP * (len(found) - 1) + _EDGES - room
        while over > 0:
            spare = [(width - low, place) for place, (width, low) in enumerate(zip(found, least, strict=True))]
            largest, place = max(spare)
            if largest == 0:
                return None
            found[place] -= 1
            over -= 1
        return found

    def _table(self, widths: Sequence[int]) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        made = Table(
            box=box.SIMPLE_HEAD,
            title=Text(self.title) if self.title else None,
            title_justify="left",
            pad_edge=False,
            show_header=any(each.name for each in self.columns),
        )
        for each, width in zip(self.columns, widths, strict=True):
            made.add_column(Text(each.name), justify="left" if each.is_text else "right", overflow="fold", width=width)
        for row in self.rows:
            made.add_row(*(Text(cell) for cell in row))
        return made

    def _blocks(self) -> RenderResult:
        from rich.text import Text

        if self.title:
            yield Text(self.title)
        name_width = max(len(each.name) for each in self.columns)
        for row in self.rows:
            yield Text("")
            for each, cell in zip(self.columns, row, strict=True):
                yield Text(f"  {each.name:{name_width}}  {cell}", overflow="fold")
        yield Text("")
