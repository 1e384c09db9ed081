"""What a command prints: tables for people, or one JSON object; notes go to stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["console", "note", "own_stdout", "plain", "pretty", "show", "table", "unicode_ok"]


def show(as_json: bool, data: Mapping[str, object], *parts: RenderableType) -> None:
    """One JSON object on stdout, or the parts one after the other; a str is printed as it is, wrapped."""
    if as_json:
        sys.stdout.write(json.dumps(plain(data), indent=2, allow_nan=False) + "\n")
        return
    out = console()
    for part in parts:
        out.print(part, markup=False, highlight=False)


def plain(value: object) -> Any:
    """The value as JSON can hold it: dataclasses as objects, what is not finite as null."""
    match value:
        case enum.Enum():
            return value.value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case None | bool() | int() | str():
            return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return str(value)


def console() -> Console:
    """Standard output, for people; square brackets in what a user typed stay square brackets."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """A table with numbers to the right; '<' before a column's name sets it to the left, '<<' in one piece, too."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=box.SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        pad_edge=False,
        show_header=any(name.lstrip("<") for name in columns),
    )
    for place, name in enumerate(columns):
        left, whole = name.startswith("<"), name.startswith("<<")
        width = max((len(row[place]) for row in rows), default=0) if whole else None
        made.add_column(
            Text(name.lstrip("<")), justify="left" if left else "right", overflow="fold", no_wrap=whole, min_width=width
        )
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def pretty(value: float | None, digits: int = 4) -> str:
    """A number for people: thousands separated, no more digits than help."""
    if value is None:
        return "-"
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}"
    if value != 0 and (abs(value) >= 1e15 or abs(value) < 1e-4):
        return f"{value:.{digits - 1}e}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


@contextlib.contextmanager
def own_stdout() -> Iterator[TextIO]:
    """Standard output for ourselves: what a user's model prints meanwhile goes to stderr."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield out


def note(message: str) -> None:
    """A line for people on stderr; never part of the result."""
    with contextlib.suppress(OSError):  # a note that nobody can read is not worth the result
        print(message, file=sys.stderr, flush=True)


def unicode_ok() -> bool:
    """Whether stdout can show more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")
