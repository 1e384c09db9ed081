"""Patterns of JSON schemas: which of them a grammar keeps to exactly, and how large it becomes of them."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

__all__ = ["pattern_size"]

_MOST_CHARACTERS = 500
_SPECIAL_GROUP = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?!:)")
_OUTER_ANCHORS = re.compile(r"^\^|(?<!\\)\$$")
_TOKEN = re.compile(
    r"(?P<atom>\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|0[0-7]{0,2}|[0-3][0-7]{2}|.)"
    r"|\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<branch>\|)"
    r"|(?P<repeat>(?:[*+?]|\{(?:\d+|\d*,\d*)\})(?P<how>[?+]?))"
    r"|(?P<anchor>[\^$])|(?P<plain>.)",
    re.DOTALL,
)
_PLACES = (r"\b", r"\B", r"\A", r"\Z")  # that match no character
_NOT_KEPT = (
    "anchors in the middle of a pattern, word boundaries, back references and possessive repetitions are not supported"
)


def pattern_size(pattern: str) -> int:
    """Places for characters, with all repetitions written out; raises ValueError with what is not possible in it."""
    if len(pattern) > _MOST_CHARACTERS:
        raise ValueError(f"the pattern has more than {_MOST_CHARACTERS} characters")
    if _SPECIAL_GROUP.search(pattern):
        raise ValueError("lookaheads, lookbehinds and other (?...) groups are not supported, except (?:...)")
    inner = _OUTER_ANCHORS.sub("", pattern)
    try:
        re.compile(inner)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the syntax of the pattern is not correct ({error})") from None
    return _size(inner)


class _Piece(NamedTuple):
    """A part of a pattern."""

    size: int = 0
    is_loose: bool = False  # something in it is repeated a number of times that may vary

    def then(self, other: _Piece) -> _Piece:
        return _Piece(self.size + other.size, self.is_loose or other.is_loose)

    def repeated(self, times: int, varies: bool) -> _Piece:
        """A text that varies in length, again and again, may be read in many ways at once."""
        ways = self.size if self.is_loose and times > 1 else 1
        return _Piece(self.size * times * ways, self.is_loose or varies)


def _size(pattern: str) -> int:
    """The pattern is valid: of each group, how large it is so far, and the last piece, which may be repeated."""
    groups: list[tuple[_Piece, _Piece]] = [(_Piece(), _Piece())]
    for token in _TOKEN.finditer(pattern):
        before, last = groups[-1]
        match token.lastgroup:
            case "open":
                groups.append((_Piece(), _Piece()))
            case "close":
                groups.pop()
                outer_before, outer_last = groups[-1]
                groups[-1] = (outer_before.then(outer_last), before.then(last))
            case "branch":
                groups[-1] = (before.then(last), _Piece())
            case "repeat":
                groups[-1] = (before, last.repeated(*_times(token)))
            case "anchor":
                raise ValueError(_NOT_KEPT)
            case _:
                _check_atom(token[0])
                groups[-1] = (before.then(last), _Piece(1))
    before, last = groups[0]
    return before.then(last).size


def _times(token: re.Match[str]) -> tuple[int, bool]:
    """How often what stands before it is written out, and whether it may be there less or more often."""
    if token["how"] == "+":
        raise ValueError(_NOT_KEPT)
    body = token["repeat"].removesuffix(token["how"]) or token["repeat"]
    if not body.startswith("{"):
        return {"?": 1, "*": 1, "+": 2}[body], True
    least, comma, most = body[1:-1].partition(",")
    if not comma:
        return int(least), False
    return int(most) if most else int(least or 0) + 1, True


def _check_atom(atom: str) -> None:
    """Raises ValueError where no character of a JSON text, unescaped, is meant by it."""
    if atom in _PLACES or (atom[0] == "\\" and atom[1] in "123456789" and len(atom) < 4):
        raise ValueError(_NOT_KEPT)
    if atom == "." or (atom[0] not in "\\[" and _fits_in_text(atom)):
        return
    if atom[0] not in "\\[" or re.search(atom, _every_character(), re.ASCII) is None:
        if atom[0] == "[":
            raise ValueError("empty character classes are not supported")
        raise ValueError(f"{atom!r} is not supported, because JSON must escape it")


def _fits_in_text(character: str) -> bool:
    return character >= " " and character not in '"\\'


@functools.cache
def _every_character() -> str:
    """That a JSON text may hold as it is."""
    return "".join(filter(_fits_in_text, map(chr, range(0x110000))))
