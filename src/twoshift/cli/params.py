"""Option types: numbers as people write them, refused with the option's name, the value and what is accepted.

Each function makes the second half of an `Annotated`: `items: Annotated[float, count("Rows to score.")]`. `shown` is
the default in words, for an option that is None until somebody gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from twoshift.errors import InvalidInput
from twoshift.units import parse_bytes, parse_count, parse_duration

__all__ = ["JsonFlag", "choice", "count", "duration", "factor", "millis", "share", "size", "text", "usd", "whole"]

# Outside these a float's products overflow or vanish, and no question about machines needs them.
SMALLEST, LARGEST = 1e-12, 1e18

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def count(about: str, *flags: str, zero: bool = False, least: float | None = None, shown: str | None = None) -> Any:
    """A number such as 1e9, 400M or 7B."""
    accepted = f"a number {_bounds(zero, least)}, such as 1e9, 400M or 7B"

    def parse(raw: str, flag: str) -> float:
        return _within(_number(parse_count, raw, flag, accepted), raw, flag, accepted, zero, least)

    return _option(parse, "NUMBER", about, flags, shown)


def whole(about: str, *flags: str, least: int = 1, most: int = 10**12, shown: str | None = None) -> Any:
    """A whole number, as an int."""
    accepted = f"a whole number from {least} to {most:,}"

    def parse(raw: str, flag: str) -> int:
        value = _number(parse_count, raw, flag, accepted)
        if value != math.floor(value) or not least <= value <= most:
            raise InvalidInput(flag, raw, accepted)
        return int(value)

    return _option(parse, "N", about, flags, shown)


def duration(about: str, *flags: str, zero: bool = False, shown: str | None = None) -> Any:
    """A time such as 12h or 90m, as seconds."""
    accepted = f"a duration {_bounds(zero)}, such as 12h, 90m, 1h30m, 45s or 250ms"

    def parse(raw: str, flag: str) -> float:
        return _within(_number(parse_duration, raw, flag, accepted), raw, flag, accepted, zero)

    return _option(parse, "DURATION", about, flags, shown)


def millis(about: str, *flags: str, zero: bool = False, shown: str | None = None) -> Any:
    """Milliseconds; a unit may be given, so 6, 6ms and 0.006s are the same."""
    accepted = f"a number of milliseconds {_bounds(zero)}, or a duration such as 50ms or 0.5s"

    def parse(raw: str, flag: str) -> float:
        if any(character.isalpha() and character not in "eE" for character in raw):
            value = 1e3 * _number(parse_duration, raw, flag, accepted)
        else:
            value = _number(parse_count, raw, flag, accepted)
        return _within(value, raw, flag, accepted, zero)

    return _option(parse, "MS", about, flags, shown)


def size(about: str, *flags: str, shown: str | None = None) -> Any:
    """Bytes such as 80GB or 24GiB; bytes a second such as 5GB/s."""
    accepted = "a size above 0, such as 80GB, 24GiB or 5GB/s"

    def parse(raw: str, flag: str) -> float:
        return _within(_number(parse_bytes, raw, flag, accepted), raw, flag, accepted)

    return _option(parse, "SIZE", about, flags, shown)


def factor(about: str, *flags: str, shown: str | None = None) -> Any:
    """A factor of at least 1."""
    accepted = "a factor of at least 1, such as 1.2"

    def parse(raw: str, flag: str) -> float:
        value = _number(parse_count, raw, flag, accepted)
        if not (math.isfinite(value) and value >= 1):
            raise InvalidInput(flag, raw, accepted)
        return value

    return _option(parse, "FACTOR", about, flags, shown)


def usd(about: str, *flags: str, shown: str | None = None) -> Any:
    """Dollars."""
    accepted = "a number of dollars above 0, such as 2.50"

    def parse(raw: str, flag: str) -> float:
        return _within(_number(parse_count, raw.strip().removeprefix("$"), flag, accepted), raw, flag, accepted)

    return _option(parse, "USD", about, flags, shown)


def share(
    about: str, *flags: str, zero: bool = True, one: bool = True, most: float = 1.0, shown: str | None = None
) -> Any:
    """A share such as 0.4 or 40%; `zero` and `one` say whether the ends are allowed."""
    low = "from 0" if zero else "above 0, up"
    accepted = f"a share {low} {f'to {most:g}' if one else 'to below 1'}, such as 0.4 or 40%"

    def parse(raw: str, flag: str) -> float:
        plain = raw.strip()
        scale = 0.01 if plain.endswith("%") else 1.0
        value = _number(parse_count, plain.removesuffix("%"), flag, accepted) * scale
        if not (value == 0 or SMALLEST <= value <= most) or (value == 0 and not zero) or (value >= 1 and not one):
            raise InvalidInput(flag, raw, accepted)
        return value

    return _option(parse, "SHARE", about, flags, shown)


def choice(about: str, options: Sequence[str], *flags: str, metavar: str = "NAME", shown: str | None = None) -> Any:
    """One of a few words, upper or lower case."""
    known = {o.lower(): o for o in options}

    def parse(raw: str, flag: str) -> str:
        found = known.get(raw.strip().lower())
        if found is None:
            near = get_close_matches(raw.lower(), known, n=1)
            hint = f" (did you mean {known[near[0]]}?)" if near else ""
            raise InvalidInput(flag, raw, f"one of {', '.join(options)}{hint}")
        return found

    return _option(parse, metavar, f"{about} One of {', '.join(options)}.", flags, shown)


def text(about: str, *flags: str, metavar: str = "TEXT", shown: str | None = None) -> Any:
    """Any words."""
    return typer.Option(*flags, metavar=metavar, help=about, show_default=shown or True)


def _option(
    parse: Callable[[str, str], Any], metavar: str, about: str, flags: tuple[str, ...], shown: str | None = None
) -> Any:
    # A callback and not a parser does the work: it knows the option's name, and its errors pass unchanged.
    def convert(param: typer.CallbackParam, value: Any) -> Any:
        flag = max(param.opts, key=len) if len(param.opts) > 1 else param.opts[0]
        if isinstance(value, list | tuple):
            return [parse(v, flag) if isinstance(v, str) else v for v in value]
        return parse(value, flag) if isinstance(value, str) else value

    return typer.Option(
        *flags, parser=_as_given, callback=convert, metavar=metavar, help=about, show_default=shown or True
    )


def _as_given(value: Any) -> Any:
    return value


def _number(parse: Callable[[str, str], float], raw: str, flag: str, accepted: str) -> float:
    try:
        return parse(raw, flag)
    except (ValueError, OverflowError):
        raise InvalidInput(flag, raw, accepted) from None


def _within(value: float, raw: str, flag: str, accepted: str, zero: bool = False, least: float | None = None) -> float:
    if zero and value == 0:
        return 0.0
    low = SMALLEST if least is None else least
    if not low <= value <= LARGEST:
        wide = math.isfinite(value) and value > 0 and least is None
        raise InvalidInput(flag, raw, f"{accepted} ({SMALLEST:g} to {LARGEST:g})" if wide else accepted)
    return value


def _bounds(zero: bool, least: float | None = None) -> str:
    if least is not None:
        return f"of at least {least:g}"
    return "of 0 or more" if zero else "above 0"
