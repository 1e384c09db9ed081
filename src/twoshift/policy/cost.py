"""What a forward call costs: the one measured curve that everything else is derived from.

    line   = overhead + per_token * tokens + per_square * sum(length^2)
    hinge  = max(floor, line)               a device that is flat until it is full
    soft   = sqrt(floor^2 + line^2)         the same, where the corner is rounded

Every coefficient is >= 0, so a prediction is never negative and never falls as a call grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from twoshift.errors import InvalidInput
from twoshift.types import CallSize

__all__ = ["CallCost", "Sample"]


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
            raise InvalidInput("sample", self, "rows, tokens and longest of at least 1")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidInput("seconds", self.seconds, "a finite number above 0")

    @property
    def size(self) -> CallSize:
        """The call's size, with the squares bounded from above where they were not counted."""
        return CallSize(self.rows, self.tokens, self.longest, self.squares or self.tokens * self.longest)


@dataclass(frozen=True, slots=True)
class CallCost:
    """Predicts the seconds of a call from its size."""

    overhead_s: float
    per_token_s: float
    floor_s: float = 0.0
    per_square_s: float = 0.0
    soft: bool = False  # the hinge's corner is rounded
    ratios: tuple[float, ...] = ()  # sorted measured/predicted, evenly spaced in probability

    def __post_init__(self) -> None:
        for name in ("overhead_s", "per_token_s", "floor_s", "per_square_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(name, value, "a finite number of seconds, 0 or more")
        if self.overhead_s + self.per_token_s + self.floor_s + self.per_square_s <= 0:
            raise InvalidInput("cost", 0, "at least one coefficient above 0")
        if any(not (math.isfinite(r) and r > 0) for r in self.ratios) or list(self.ratios) != sorted(self.ratios):
            raise InvalidInput("ratios", self.ratios, "positive numbers in rising order")

    @classmethod
    def line(cls, overhead_s: float, per_token_s: float) -> CallCost:
        """The plain `o + c * tokens`."""
        return cls(overhead_s, per_token_s)

    @property
    def shape(self) -> str:
        """`line` or `hinge`, with `+squares` where length squared counts."""
        name = "hinge" if self.floor_s else "line"
        return f"{name}+squares" if self.per_square_s else name

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Predicted seconds; `quantile` of the residual: 0.9 is met by nine in ten of the calls that do not stall."""
        line = self.overhead_s + self.per_token_s * size.tokens + self.per_square_s * size.squares
        floor = self.floor_s
        if floor:
            line = math.hypot(floor, line) if self.soft else max(floor, line)
        return line * self._ratio(quantile) if self.ratios else line

    def at(self, quantile: float) -> CallCost:
        """The curve of that quantile, as a plain curve: what the hot paths use."""
        return replace(self.scaled(self._ratio(quantile)), ratios=())

    def scaled(self, factor: float) -> CallCost:
        """The curve of a device `factor` times as slow."""
        return replace(
            self,
            overhead_s=self.overhead_s * factor,
            per_token_s=self.per_token_s * factor,
            floor_s=self.floor_s * factor,
            per_square_s=self.per_square_s * factor,
        )

    def _ratio(self, quantile: float) -> float:
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
        return {**plain, "ratios": list(self.ratios), "shape": self.shape}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> CallCost:
        """The curve that `to_dict` wrote; raises InvalidInput on anything else."""
        numbers: dict[str, float] = {}
        for name in ("overhead_s", "per_token_s", "floor_s", "per_square_s"):
            value = data.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(name, value, "a number of seconds")
            numbers[name] = float(value) if abs(value) < 1e300 else math.inf
        ratios, soft = data.get("ratios"), data.get("soft")
        if not isinstance(ratios, Sequence) or isinstance(ratios, str):
            raise InvalidInput("ratios", ratios, "a list of numbers")
        if not isinstance(soft, bool):
            raise InvalidInput("soft", soft, "true or false")
        values: list[float] = []
        for ratio in ratios:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(ratio, bool) or not isinstance(ratio, int | float):
                raise InvalidInput("ratios", ratio, "numbers")  # pyright: ignore[reportUnknownArgumentType]
            values.append(float(ratio) if abs(ratio) < 1e300 else math.inf)
        return cls(**numbers, soft=soft, ratios=tuple(values))
