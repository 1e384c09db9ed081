"""Rows as lines of text: read in bounded chunks as they arrive, and turned into what a model takes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from twoshift.cli.files import CLOSED_STDIN
from twoshift.cli.output import note
from twoshift.errors import InvalidInput, UnusableModel

__all__ = ["Line", "Parse", "json_row", "line_chunks", "opened", "pair_row", "text_or_pair", "text_row"]

_READ_BYTES = 1 << 16
_MOST_LINE_BYTES = 4 << 20
_MOST_ROWS = 256  # in a chunk
_PAIR = '{"query": ..., "text": ...} or ["query", "text"]; this model scores pairs of texts'
_TEXT_OR_PAIR = 'a text, {"text": ...}, or a pair: {"query": ..., "text": ...} or ["query", "text"]'


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input, counted from 1."""

    number: int
    text: str
    problem: str | None = None  # why it could not be read


Parse = Callable[[Line], Any]


@contextlib.contextmanager
def opened(path: str, field: str) -> Iterator[BinaryIO]:
    """The file's bytes (`-`: standard input, which stays open)."""
    if path == "-":
        if sys.stdin is None:
            raise UnusableModel(field, path, CLOSED_STDIN)
        if sys.stdin.isatty():
            note("Reading rows from the terminal, one per line; press Ctrl-D to end the input.")
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below, and errors while reading are others
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnusableModel(field, path, f"cannot be read ({reason}); name a file with one row per line") from None
    with file:
        yield file


def line_chunks(stream: BinaryIO) -> Iterator[list[Line]]:
    """The lines that are there already, at most 256: a slow writer is not waited for, a huge file not held."""
    number = 0
    for lines in _raw_lines(stream):
        for start in range(0, len(lines), _MOST_ROWS):
            chunk = [_line(number + k, raw) for k, raw in enumerate(lines[start : start + _MOST_ROWS], start=1)]
            number += len(chunk)
            yield chunk


def text_row(line: Line) -> str:
    """The line as it is."""
    if line.problem is not None:
        raise InvalidInput(f"line {line.number}", line.text, line.problem)
    return line.text


def json_row(line: Line) -> Any:
    """The line's JSON value."""
    try:
        return _decoded(text_row(line))
    except json.JSONDecodeError as error:
        why = f"{error.msg.lower()} at column {error.colno}"
    except RecursionError:
        why = "nested too deeply"
    raise InvalidInput(f"line {line.number}", line.text, f'JSON such as {{"x": 1.5}} ({why})')


def text_or_pair(line: Line) -> str | tuple[str, str]:
    """A text, or a pair for a model that scores one text for another; what is no JSON is a text as it stands."""
    text = text_row(line)
    try:
        value = _decoded(text)
    except (json.JSONDecodeError, RecursionError):
        return text
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = [fields.get("query"), fields.get("text")] if "query" in fields else fields.get("text")
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2:
        first, second = value
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    if text.lstrip()[:1] in ("{", "["):
        raise InvalidInput(f"line {line.number}", text, _TEXT_OR_PAIR)
    return text  # a number or a bare word, meant as a text


def pair_row(line: Line) -> tuple[str, str]:
    """A pair of texts, for a model that takes nothing else."""
    with contextlib.suppress(InvalidInput):
        value = text_or_pair(line)
        if not isinstance(value, str):
            return value
    raise InvalidInput(f"line {line.number}", line.text, line.problem or _PAIR)


def _decoded(text: str) -> Any:
    def refuse(name: str) -> Any:
        raise json.JSONDecodeError(f"{name} is not JSON", text, text.find(name))

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise json.JSONDecodeError(str(error), text, 0) from error


def _raw_lines(stream: BinaryIO) -> Iterator[list[bytes | None]]:
    """Whole lines without their ends; None for one that is too long to hold."""
    rest, skipping = b"", False
    while data := stream.read1(_READ_BYTES):  # type: ignore[attr-defined]
        lines: list[bytes | None] = [*(rest + data).split(b"\n")]
        rest = lines.pop() or b""
        if lines and skipping:
            lines[0], skipping = None, False
        if len(rest) > _MOST_LINE_BYTES:
            rest, skipping = b"", True
        yield lines
    if rest or skipping:
        yield [None if skipping else rest]


def _line(number: int, raw: bytes | None) -> Line:
    if raw is None:
        return Line(number, "...", f"a line of at most {_MOST_LINE_BYTES >> 20} MiB")
    try:
        return Line(number, raw.removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        return Line(number, raw[:80].decode("utf-8", "backslashreplace"), "a line in UTF-8")
