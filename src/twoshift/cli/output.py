"""What a command prints: tables for people, or one JSON object; notes go to stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from twoshift.cli.tables import FittingTable, column
from twoshift.logs import log_note, writes_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["console", "draws_progress", "note", "own_stdout", "plain", "pretty", "show", "table", "unicode_ok"]

_UNLIMITED = 10_000  # characters of a line


def show(as_json: bool, data: Mapping[str, object], *parts: RenderableType) -> None:
    """One JSON object on stdout, or the parts one after the other; a str is printed as it is, wrapped."""
    if as_json:
        sys.stdout.write(json.dumps(plain(data), indent=2, allow_nan=False) + "\n")
        return
    out, wide = console(), console(None if _is_seen() else _UNLIMITED)
    for part in parts:
        if isinstance(part, str):
            for line in part.split("\n"):
                # A path is copied: it stays in one piece, however long
                whole = any(len(word) > out.width for word in line.split())
                out.print(line, markup=False, highlight=False, soft_wrap=whole)
        else:
            (wide if isinstance(part, FittingTable) else out).print(part, markup=False, highlight=False)


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


def console(width: int | None = None) -> Console:
    """Standard output, for people; square brackets in what a user typed stay square brackets."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, width=width)


def _is_seen() -> bool:
    """Whether a terminal limits what stands in a line; a program that reads a table wants its rows in one piece."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, less: Sequence[str] = ()
) -> FittingTable:
    """A table with numbers to the right; '<' before a column's name sets it to the left, '<<' in one piece, too.

    `less` are columns that may be left out where there is no room, the first first.
    """
    return FittingTable([column(name) for name in columns], rows, title, less)


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
    if writes_json():
        log_note(message)
        return
    with contextlib.suppress(OSError):  # a note that nobody can read is not worth the result
        print(message, file=sys.stderr, flush=True)


def draws_progress() -> bool:
    """Whether people see stderr on a terminal as it is written."""
    return sys.stderr.isatty() and not writes_json()


def unicode_ok() -> bool:
    """Whether stdout can show more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")
