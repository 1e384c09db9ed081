"""Patterns of JSON schemas: which of them a grammar keeps to exactly, and how large it becomes of them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["pattern_size"]

_parser: Any = importlib.import_module("re._parser")  # Python's own: a pattern as a tree
_MOST_CHARACTERS = 500
_SPECIAL_GROUP = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?!:)")
_OUTER_ANCHORS = re.compile(r"^\^|(?<!\\)\$$")
_PRINTABLE = range(0x20, 0x7F)
_CATEGORIES = {
    f"CATEGORY_{name}": re.compile(code, re.ASCII)
    for word, small in (("DIGIT", r"\d"), ("SPACE", r"\s"), ("WORD", r"\w"))
    for name, code in ((word, small), (f"NOT_{word}", small.upper()))
}


def pattern_size(pattern: str) -> int:
    """Places for characters, with all repetitions written out; raises ValueError with what is not possible in it."""
    if len(pattern) > _MOST_CHARACTERS:
        raise ValueError(f"more than {_MOST_CHARACTERS} characters")
    if _SPECIAL_GROUP.search(pattern):
        raise ValueError("a group that begins with (? and is not (?:...), as lookaheads and lookbehinds")
    try:
        tree = _parser.parse(_OUTER_ANCHORS.sub("", pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"what cannot be read ({error})") from None
    return _size(tree)


def _size(tree: Iterable[tuple[Any, Any]]) -> int:
    return sum(_node_size(str(kind), value) for kind, value in tree)


def _node_size(kind: str, value: Any) -> int:
    match kind:
        case "LITERAL":
            if not _fits_in_text(value):
                raise ValueError(f"{chr(value)!r}, which a JSON text has to escape")
            return 1
        case "NOT_LITERAL" | "ANY":
            return 1
        case "IN":
            if not _matches_something(value):
                raise ValueError("a class of characters in which there is none")
            return 1
        case "BRANCH":
            return sum(map(_size, value[1]))
        case "SUBPATTERN":
            return _size(value[-1])
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, inner = value
            return _size(inner) * (least + 1 if most == _parser.MAXREPEAT else most)
        case _:
            raise ValueError("an anchor inside, a word boundary, a back reference or a possessive repetition")


def _fits_in_text(code: int) -> bool:
    return code >= 0x20 and chr(code) not in '"\\'


def _matches_something(items: list[tuple[Any, Any]]) -> bool:
    """Looked for among plain characters, and at the borders of what the class names."""
    negated = str(items[0][0]) == "NEGATE"
    named = items[1:] if negated else items
    borders = [code + step for kind, value in named for code in _borders(str(kind), value) for step in (-1, 0, 1)]
    tried = [code for code in (*_PRINTABLE, *borders) if code <= 0x10FFFF and _fits_in_text(code)]
    return any(any(_matches(str(kind), value, code) for kind, value in named) != negated for code in tried)


def _borders(kind: str, value: Any) -> tuple[int, ...]:
    return (value,) if kind == "LITERAL" else tuple(value) if kind == "RANGE" else ()


def _matches(kind: str, value: Any, code: int) -> bool:
    match kind:
        case "LITERAL":
            return code == value
        case "RANGE":
            return value[0] <= code <= value[1]
        case _:
            return _CATEGORIES[str(value)].match(chr(code)) is not None
