"""What a forward call costs: the one measured curve that everything else is derived from.

    line   = overhead + per_row * rows + per_token * tokens + per_square * sum(length^2) + reading
    hinge  = max(floor, line)               a device that is flat until it is full
    soft   = sqrt(floor^2 + line^2)         the same, where the corner is rounded

where `reading` counts for calls with a row of more than one token: a language model's steps that read prompts. And no
more than a larger call was measured to take, where that is less (`ceilings`).

Every coefficient is >= 0, so a prediction is never negative and never falls as a call grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, cast

from twoshift.errors import InvalidInput
from twoshift.types import CallSize

__all__ = ["CallCost", "Ceiling", "Sample"]

_LEAST = 0.1  # of a coefficient, that `moved` leaves
_COEFFICIENTS = ("overhead_s", "per_token_s", "floor_s", "per_square_s", "per_row_s", "reading_s")


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured call."""

    rows: int
    tokens: int
    longest: int
    seconds: float
    squares: int = 0  # sum of length squared; 0: not known, bounded by tokens * longest

    def __post_init__(self) -> None:
        if self.rows < 1 or self.tokens < 1 or self.longest < 1:
            raise InvalidInput("sample", self, "`rows`, `tokens` and `longest` of at least 1")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidInput("seconds", self.seconds, "a finite number above 0")

    @property
    def size(self) -> CallSize:
        """The call's size, with the squares bounded from above where they were not counted."""
        return CallSize(self.rows, self.tokens, self.longest, self.squares or self.tokens * self.longest)


class Ceiling(NamedTuple):
    """Measured time of a call; a call that is no larger in any respect takes no longer."""

    rows: int
    tokens: int
    squares: int
    seconds: float  # the median
    scatter: float = 0.0  # 0 to 1: how much of the curve's scatter its calls have

    def at(self, ratio: float) -> float:
        """Seconds where the curve's residual is `ratio`."""
        return self.seconds * (1.0 + self.scatter * (ratio - 1.0))


@dataclass(frozen=True, slots=True)
class CallCost:
    """Predicts the seconds of a call from its size."""

    overhead_s: float
    per_token_s: float
    floor_s: float = 0.0
    per_square_s: float = 0.0
    soft: bool = False  # the hinge's corner is rounded
    ratios: tuple[float, ...] = ()  # sorted measured/predicted, evenly spaced in probability
    per_row_s: float = 0.0  # what a row costs however short it is
    reading_s: float = 0.0  # what a call with a row of more than one token costs beside its tokens
    ceilings: tuple[Ceiling, ...] = ()  # calls measured to be cheaper than the rest says; most tokens first

    def __post_init__(self) -> None:
        for name in _COEFFICIENTS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(name, value, "a finite number of seconds, 0 or more")
        if sum(getattr(self, name) for name in _COEFFICIENTS) <= 0:
            raise InvalidInput("cost", 0, "at least one coefficient above 0")
        if any(not (math.isfinite(r) and r > 0) for r in self.ratios) or list(self.ratios) != sorted(self.ratios):
            raise InvalidInput("ratios", self.ratios, "numbers above 0 in ascending order")
        if any(not (math.isfinite(c.seconds) and c.seconds > 0 and 0 <= c.scatter <= 1) for c in self.ceilings):
            accepted = "ceilings with a finite number of seconds above 0 and a scatter from 0 to 1"
            raise InvalidInput("ceilings", self.ceilings, accepted)
        if list(self.ceilings) != sorted(self.ceilings, key=lambda c: -c.tokens):
            raise InvalidInput("ceilings", self.ceilings, "ceilings in descending order of tokens")

    @classmethod
    def line(cls, overhead_s: float, per_token_s: float) -> CallCost:
        """The plain `o + c * tokens`."""
        return cls(overhead_s, per_token_s)

    @property
    def shape(self) -> str:
        """`line` or `hinge`, with `+rows` where a row counts by itself and `+squares` where length squared does."""
        name = "hinge" if self.floor_s else "line"
        return name + "+rows" * (self.per_row_s > 0) + "+squares" * (self.per_square_s > 0)

    def row_s(self, tokens: float, longest: float) -> float:
        """Seconds that one more row with this many tokens adds to a call above its floor."""
        return self.per_row_s + tokens * (self.per_token_s + self.per_square_s * longest)

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Predicted seconds at a quantile of the residual: with 0.9, nine in ten calls that do not stall are faster."""
        line = self.overhead_s + self.per_token_s * size.tokens + self.per_square_s * size.squares
        if self.per_row_s:
            line += self.per_row_s * size.rows
        if self.reading_s and size.longest > 1:
            line += self.reading_s
        floor = self.floor_s
        if floor:
            line = math.hypot(floor, line) if self.soft else max(floor, line)
        ratio = self.ratio(quantile) if self.ratios else 1.0
        if self.ceilings and size.tokens <= self.ceilings[0].tokens:
            return self._lowered(line * ratio, size, ratio)
        return line * ratio

    def at_most_s(self, rows: int, tokens: int, squares: int) -> float:
        """No less than so many rows take, in however many calls: one of its own for each, whatever was measured."""
        each_s = self.overhead_s + self.floor_s + self.per_row_s + self.reading_s
        return rows * each_s + tokens * self.per_token_s + squares * self.per_square_s

    def at(self, quantile: float) -> CallCost:
        """The curve of that quantile, as a plain curve: what the hot paths use."""
        ratio = self.ratio(quantile)
        ceilings = tuple(c._replace(seconds=c.at(ratio), scatter=0.0) for c in self.ceilings)
        return replace(self.scaled(ratio), ratios=(), ceilings=ceilings)

    def at_least(self, other: CallCost) -> CallCost:
        """The plain curve that neither of the two is above."""
        most = {name: max(getattr(self, name), getattr(other, name)) for name in _COEFFICIENTS}
        return replace(self, ratios=(), ceilings=(), **most)

    def scaled(self, factor: float) -> CallCost:
        """The curve of a device that is `factor` times as slow."""
        ceilings = tuple(c._replace(seconds=c.seconds * factor) for c in self.ceilings)
        return replace(self, ceilings=ceilings, **{name: getattr(self, name) * factor for name in _COEFFICIENTS})

    def moved(self, size: CallSize, factor: float) -> CallCost:
        """The curve by which a call of that size takes `factor` times as long, and one of another size less so.

        What such a call mostly consists of changes most: a short one says little of what a token costs.
        """
        rows, tokens, longest, squares = size
        parts = {
            "overhead_s": self.overhead_s,
            "floor_s": self.floor_s,
            "per_row_s": self.per_row_s * rows,
            "per_token_s": self.per_token_s * tokens,
            "per_square_s": self.per_square_s * squares,
            "reading_s": self.reading_s if longest > 1 else 0.0,
        }
        share = (factor - 1.0) * sum(parts.values()) / sum(part**1.5 for part in parts.values())
        factors = {name: max(_LEAST, 1.0 + share * math.sqrt(part)) for name, part in parts.items()}
        ceilings = tuple(c._replace(seconds=c.seconds * factor) for c in self.ceilings)
        return replace(self, ceilings=ceilings, **{name: getattr(self, name) * each for name, each in factors.items()})

    def _lowered(self, seconds: float, size: CallSize, ratio: float) -> float:
        # Unpacked, because the hot paths come here.
        call_rows, call_tokens, _, call_squares = size
        for rows, tokens, squares, most_s, scatter in self.ceilings:
            if call_rows <= rows and call_tokens <= tokens and call_squares <= squares:
                if scatter:
                    most_s *= 1.0 + scatter * (ratio - 1.0)
                if most_s < seconds:
                    seconds = most_s
        return seconds

    def ratio(self, quantile: float) -> float:
        """Measured over predicted, at that quantile of the calls."""
        if not 0.0 <= quantile <= 1.0:
            raise InvalidInput("quantile", quantile, "a number from 0 to 1")
        if not self.ratios:
            return 1.0
        at = quantile * (len(self.ratios) - 1)
        low = int(at)
        high = min(low + 1, len(self.ratios) - 1)
        return self.ratios[low] + (at - low) * (self.ratios[high] - self.ratios[low])

    def to_dict(self) -> dict[str, object]:
        """A JSON-ready form; `from_dict` gives back an equal curve."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**plain, "ratios": list(self.ratios), "ceilings": [list(c) for c in self.ceilings], "shape": self.shape}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> CallCost:
        """The curve that `to_dict` wrote; raises InvalidInput on anything else."""
        older = {"per_row_s": 0.0, "reading_s": 0.0, "ceilings": ()}  # records that were written without them
        found = {**older, **data}
        numbers = {name: _number(name, found.get(name)) for name in _COEFFICIENTS}
        soft = found.get("soft")
        if not isinstance(soft, bool):
            raise InvalidInput("soft", soft, "true or false")
        ratios = tuple(_numbers("ratios", found.get("ratios")))
        ceilings = tuple(_ceiling(each) for each in _list("ceilings", found["ceilings"]))
        return cls(**numbers, soft=soft, ratios=ratios, ceilings=ceilings)


def _ceiling(value: object) -> Ceiling:
    numbers = _numbers("ceilings", value)
    if len(numbers) != 5 or not all(math.isfinite(n) and n == n // 1 >= 1 for n in numbers[:3]):
        accepted = "five numbers: rows, tokens and squares (whole numbers of at least 1), seconds, and scatter"
        raise InvalidInput("ceilings", value, accepted)
    rows, tokens, squares, seconds, scatter = numbers
    return Ceiling(int(rows), int(tokens), int(squares), seconds, scatter)


def _numbers(name: str, value: object) -> list[float]:
    return [_number(name, each) for each in _list(name, value)]


def _list(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidInput(name, value, "a list of numbers")
    return cast("Sequence[object]", value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(name, value, "a number")
    return float(value) if abs(value) < 1e300 else math.inf
