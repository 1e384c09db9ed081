"""Values as people write them, on a command line or in a file: how each is read, and what is accepted of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.units import parse_bytes, parse_count, parse_duration

__all__ = [
    "EACH", "FLAG", "Value", "choice", "contents", "count", "duration", "each_named", "factor", "mapping", "millis",
    "names", "share", "size", "span", "text", "usd", "whole",
]  # fmt: skip

# Outside these a float's products overflow or vanish, and no question about machines needs them.
SMALLEST, LARGEST = 1e-12, 1e18
_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Value:
    """One kind of value: `parse` reads it as written, and names the option in its errors; `fits` checks what it is."""

    metavar: str = "TEXT"
    parse: Callable[[str, str], Any] = lambda raw, _: raw
    plain: str = ""  # what is accepted of a value that is not written with a unit, as in a file
    fits: Callable[[Any], bool] = lambda _: True
    write: Callable[[Any], str] = str  # so that `parse` reads the same again
    repeats: bool = False  # an option for each of a list
    options: tuple[str, ...] = ()  # where it is one of a few
    joined: Callable[[Sequence[str], str], Any] | None = None  # of one that repeats: what all of them together are


FLAG = Value(metavar="")
EACH = Value(repeats=True)


def text(metavar: str = "TEXT", plain: str = "", fits: Callable[[Any], bool] = lambda _: True) -> Value:
    """Any words, or some."""
    return Value(metavar, plain=plain, fits=fits)


def count(zero: bool = False, least: float | None = None, most: float = LARGEST) -> Value:
    """A number such as 1e9, 400M or 7B."""
    bounds = (
        _bounds(zero, least)
        if most == LARGEST
        else f"from {least:g} to {most:g}"
        if least
        else f"above 0, up to {most:g}"
    )
    accepted = f"a number {bounds}"
    return _number("NUMBER", accepted, accepted, parse_count, _between(zero, least, most), wide=least is None)


def whole(least: int = 1, most: int = 10**12) -> Value:
    """A whole number, as an int."""
    bounds = f"from {least:,} to {most:,}" if most < 10**12 else f"of at least {least}"
    accepted = "a whole number from -2^63 to 2^63 - 1" if least == -(2**63) else f"a whole number {bounds}"

    def fits(value: float) -> bool:
        return least <= value <= most and value == math.floor(value)

    def read(raw: str, flag: str) -> float:
        return int(raw) if _DIGITS.fullmatch(raw.strip()) else parse_count(raw, flag)  # beyond 2**53 floats have gaps

    return _number("N", accepted, accepted, read, fits, int, wide=False)


def duration(zero: bool = False) -> Value:
    """A time such as 12h or 90m, as seconds."""
    accepted = f"a duration {_bounds(zero)}, such as 12h, 90m, 1h30m, 45s or 250ms"
    plain = "seconds, 0 or more" if zero else "seconds above 0"
    return _number("DURATION", accepted, plain, parse_duration, _between(zero), write=lambda value: f"{value}s")


def span(zero: bool = False, least: str = "", most: str = "") -> Value:
    """A time such as 12h, as it is written."""
    low, high = (parse_duration(each) if each else None for each in (least, most))
    bounds = f"from {least} to {most}" if least else f"{_bounds(zero)}, such as 12h, 90m, 1h30m, 45s or 250ms"
    fits_s, accepted = _between(zero, low, LARGEST if high is None else high), f"a duration {bounds}"

    def fits(value: str) -> bool:
        try:
            return fits_s(parse_duration(value))
        except InvalidInput:
            return False

    def parse(raw: str, flag: str) -> str:
        if not fits(raw):
            raise InvalidInput(flag, raw, accepted)
        return raw

    return Value("DURATION", parse, accepted, fits)


def millis(zero: bool = False) -> Value:
    """Milliseconds; a unit may be given, so 6, 6ms and 0.006s are the same."""
    accepted = f"a number of milliseconds {_bounds(zero)}, or a duration such as 50ms or 0.5s"

    def read(raw: str, flag: str) -> float:
        has_unit = any(character.isalpha() and character not in "eE" for character in raw)
        return 1e3 * parse_duration(raw, flag) if has_unit else parse_count(raw, flag)

    return _number("MS", accepted, f"a number of milliseconds {_bounds(zero)}", read, _between(zero))


def size() -> Value:
    """Bytes such as 80GB or 24GiB; bytes a second such as 5GB/s."""
    return _number("SIZE", "a size above 0, such as 80GB, 24GiB or 5GB/s", "bytes above 0", parse_bytes, _between())


def factor() -> Value:
    """A factor of at least 1."""
    accepted = "a factor of at least 1, such as 1.2"
    return _number("FACTOR", accepted, accepted, parse_count, lambda value: 1 <= value < math.inf, wide=False)


def usd(zero: bool = False) -> Value:
    """Dollars."""
    accepted = f"a number of dollars {_bounds(zero)}, such as 2.50"

    def read(raw: str, flag: str) -> float:
        return parse_count(raw.strip().removeprefix("$"), flag)

    return _number("USD", accepted, accepted, read, _between(zero))


def share(zero: bool = True, one: bool = True, most: float = 1.0) -> Value:
    """A share such as 0.4 or 40%; `zero` and `one` say whether the ends are allowed."""
    if one:
        bounds = f"from 0 to {most:g}" if zero else f"above 0, up to {most:g}"
    else:
        bounds = "of 0 or more and below 1" if zero else "above 0 and below 1"
    plain = f"a share {bounds}, such as 0.4"

    def read(raw: str, flag: str) -> float:
        plain = raw.strip()
        return parse_count(plain.removesuffix("%"), flag) * (0.01 if plain.endswith("%") else 1.0)

    def fits(value: float) -> bool:
        return zero if value == 0 else SMALLEST <= value <= most and (value < 1 or one)

    return _number("SHARE", plain, plain, read, fits, wide=False)


def choice(options: Sequence[str], metavar: str = "NAME") -> Value:
    """One of a few words, upper or lower case on a command line."""
    known = {each.lower(): each for each in options}
    plain = " or ".join(options) if len(options) < 3 else f"one of {', '.join(options)}"

    def parse(raw: str, flag: str) -> str:
        found = known.get(raw.strip().lower())
        if found is None:
            near = get_close_matches(raw.lower(), known, n=1)
            hint = f" (did you mean {known[near[0]]}?)" if near else ""
            raise InvalidInput(flag, raw, f"{plain}{hint}")
        return found

    return Value(metavar, parse, plain, lambda value: value in options, options=tuple(options))


def names(plain: str = "", fits: Callable[[Any], bool] = lambda _: True) -> Value:
    """A list: a,b,c."""

    def parse(raw: str, _: str) -> list[str]:
        return [name.strip() for name in raw.split(",") if name.strip()]

    return Value("TEXT", parse, plain, fits, ",".join)


def mapping(accepted: str, noun: str, read: Callable[[str], Any] = str) -> Value:
    """Names with values: a=1,b=2; `noun` is what is named."""

    def parse(raw: str, flag: str) -> dict[str, Any]:
        pairs = [tuple(part.strip() for part in each.rpartition("=")) for each in raw.split(",")]
        named = [name for name, _, _ in pairs]
        try:
            found = {name: read(value) for name, _, value in pairs if name and value}
        except ValueError:
            raise InvalidInput(flag, raw, accepted) from None
        if not all(name and value for name, _, value in pairs):
            raise InvalidInput(flag, raw, accepted)
        if twice := next((name for name in named if named.count(name) > 1), None):
            raise InvalidInput(flag, raw, f"each {noun} once; {twice} occurs {named.count(twice)} times")
        return found

    return Value("TEXT", parse, write=lambda value: ",".join(f"{name}={each}" for name, each in value.items()))


def each_named(metavar: str, plain: str, fits: Callable[[Any], bool] = lambda _: True) -> Value:
    """Names with values, an option for each: a=1."""

    def joined(given: Sequence[str], flag: str) -> dict[str, str]:
        found = dict[str, str]()
        for each in given:
            name, _, value = (part.strip() for part in each.partition("="))
            if not (name and value):
                raise InvalidInput(flag, each, metavar)
            if name in found:
                raise InvalidInput(flag, each, f"each name once; {name} is given more than once")
            found[name] = value
        return found

    return Value(metavar, plain=plain, fits=fits, repeats=True, joined=joined)


def contents() -> Value:
    """A text, which a command line gives as the file that holds it."""

    def parse(raw: str, flag: str) -> str:
        try:
            return Path(raw).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(flag, raw, f"a file that can be read ({error})") from None

    return Value("FILE", parse)


def _number(
    metavar: str, accepted: str, plain: str, read: Callable[[str, str], float], fits: Callable[[Any], bool],
    made: Callable[[float], Any] = float, write: Callable[[Any], str] = str, wide: bool = True,
) -> Value:  # fmt: skip
    def parse(raw: str, flag: str) -> Any:
        try:
            value = read(raw, flag)
        except (ValueError, OverflowError):
            raise InvalidInput(flag, raw, accepted) from None
        if not fits(value):
            is_far_off = wide and (0 < value < SMALLEST or LARGEST < value < math.inf)
            raise InvalidInput(flag, raw, f"{accepted} ({SMALLEST:g} to {LARGEST:g})" if is_far_off else accepted)
        return made(value)

    return Value(metavar, parse, plain, fits, write)


def _between(zero: bool = False, least: float | None = None, most: float = LARGEST) -> Callable[[float], bool]:
    low = SMALLEST if least is None else least
    return lambda value: (zero and value == 0) or low <= value <= most


def _bounds(zero: bool, least: float | None = None) -> str:
    if least is not None:
        return f"of at least {least:g}"
    return "of 0 or more" if zero else "above 0"
