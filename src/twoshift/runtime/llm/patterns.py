"""Patterns of JSON schemas: which of them a grammar keeps to exactly, and how large it becomes of them."""

from __future__ import annotations

import functools
import re

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
_NOT_KEPT = "an anchor inside, a word boundary, a back reference or a possessive repetition"


def pattern_size(pattern: str) -> int:
    """Places for characters, with all repetitions written out; raises ValueError with what is not possible in it."""
    if len(pattern) > _MOST_CHARACTERS:
        raise ValueError(f"more than {_MOST_CHARACTERS} characters")
    if _SPECIAL_GROUP.search(pattern):
        raise ValueError("a group that begins with (? other than (?:...), such as a lookahead or lookbehind")
    inner = _OUTER_ANCHORS.sub("", pattern)
    try:
        re.compile(inner)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"syntax that cannot be parsed ({error})") from None
    return _size(inner)


def _size(pattern: str) -> int:
    """The pattern is valid: of each group, how large it is so far, and the last piece, which may be repeated."""
    groups: list[tuple[int, int]] = [(0, 0)]
    for token in _TOKEN.finditer(pattern):
        before, last = groups[-1]
        match token.lastgroup:
            case "open":
                groups.append((0, 0))
            case "close":
                groups.pop()
                outer_before, outer_last = groups[-1]
                groups[-1] = (outer_before + outer_last, before + last)
            case "branch":
                groups[-1] = (before + last, 0)
            case "repeat":
                groups[-1] = (before, last * _times(token))
            case "anchor":
                raise ValueError(_NOT_KEPT)
            case _:
                _check_atom(token[0])
                groups[-1] = (before + last, 1)
    return sum(groups[0])


def _times(token: re.Match[str]) -> int:
    """How often what stands before it is written out."""
    if token["how"] == "+":
        raise ValueError(_NOT_KEPT)
    body = token["repeat"].removesuffix(token["how"]) or token["repeat"]
    if not body.startswith("{"):
        return {"?": 1, "*": 1, "+": 2}[body]
    least, comma, most = body[1:-1].partition(",")
    if not comma:
        return int(least)
    return int(most) if most else int(least or 0) + 1


def _check_atom(atom: str) -> None:
    """Raises ValueError where no character of a JSON text, unescaped, is meant by it."""
    if atom in _PLACES or (atom[0] == "\\" and atom[1] in "123456789" and len(atom) < 4):
        raise ValueError(_NOT_KEPT)
    if atom == "." or (atom[0] not in "\\[" and _fits_in_text(atom)):
        return
    if atom[0] not in "\\[" or re.search(atom, _every_character(), re.ASCII) is None:
        told = "an empty character class" if atom[0] == "[" else f"{atom!r}"
        raise ValueError(told if atom[0] == "[" else f"{told}, which JSON must escape")


def _fits_in_text(character: str) -> bool:
    return character >= " " and character not in '"\\'


@functools.cache
def _every_character() -> str:
    """That a JSON text may hold as it is."""
    return "".join(filter(_fits_in_text, map(chr, range(0x110000))))
