"""A cost curve over calls, as a curve over batches of typical rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from twoshift.errors import InvalidInput
from twoshift.types import CallSize

__all__ = ["Curve", "RowSize"]


class Curve(Protocol):
    """Predicts the cost of a call: a measured curve, or `o + c * b`."""

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Seconds of a call of this size."""
        ...


@dataclass(frozen=True, slots=True)
class RowSize:
    """The typical row: its tokens, and the longest row of a call (which the cost of attention depends on)."""

    tokens: float = 1.0
    longest: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= 1e12:
            raise InvalidInput("row_tokens", self.tokens, "a number from 1 to 1e12")
        if not 1 <= self.longest <= 1e12:
            raise InvalidInput("row_longest", self.longest, "a number from 1 to 1e12")

    @classmethod
    def uniform(cls, tokens: float) -> RowSize:
        """Rows that are all `tokens` long."""
        return cls(tokens, tokens)

    def scaled_to(self, tokens: float) -> RowSize:
        """Rows of another length, spread as these are."""
        return RowSize(tokens, max(1.0, self.longest * tokens / self.tokens))

    def call(self, rows: int) -> CallSize:
        """The size of a call with this many typical rows."""
        tokens = round(rows * self.tokens)
        return CallSize(rows, tokens, math.ceil(self.longest), round(tokens * self.longest))
