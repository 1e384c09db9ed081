"""Curves that the planner may use in place of a data sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twoshift.policy.plan.row import Curve, RowSize

__all__ = ["MeasuredCurve", "MeasuredCurves"]


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """What calls of a model were measured to cost."""

    cost: Curve
    row: RowSize
    about: str


class MeasuredCurves(Protocol):
    """Curves that may be used in place of a data sheet."""

    def names(self) -> Sequence[str]: ...

    def get(self, name: str, /) -> MeasuredCurve:
        """Raises InvalidInput with the known names."""
        ...
