"""Accuracy of predictions: how far measured values are off, and how often they are in the predicted range."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Calibration", "Scored", "calibrate", "comparable"]

_NEAR = 1.25  # a factor


class Scored(Protocol):
    """A prediction with its measured value."""

    @property
    def kind(self) -> str: ...

    @property
    def what(self) -> str: ...

    @property
    def predicted(self) -> float: ...

    @property
    def measured(self) -> float: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Calibration:
    """Accuracy of all predictions of one kind."""

    kind: str
    what: str
    count: int
    median_ratio: float  # measured over predicted: above 1 it was more than was said
    near_share: float  # of them: within a factor of 1.25
    ranged: int  # of them: that had a range
    inside_share: float | None  # of those: inside it; 0.8 is right


def comparable(each: Scored) -> bool:
    """Whether the ratio of the two values is meaningful: both are finite and above 0."""
    return 0 < each.predicted < math.inf and 0 < each.measured < math.inf


def calibrate(scored: Iterable[Scored]) -> list[Calibration]:
    """Accuracy by kind and figure, sorted by name."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for each in scored:
        if comparable(each):
            groups.setdefault((each.kind, each.what), []).append(each)
    return [_of(kind, what, found) for (kind, what), found in sorted(groups.items())]


def _of(kind: str, what: str, found: list[Scored]) -> Calibration:
    ratios = [each.measured / each.predicted for each in found]
    near = sum(1 / _NEAR <= ratio <= _NEAR for ratio in ratios) / len(ratios)
    inside = [
        each.low <= each.measured <= each.high for each in found if each.low is not None and each.high is not None
    ]
    share = sum(inside) / len(inside) if inside else None
    return Calibration(kind, what, len(found), statistics.median(ratios), near, len(inside), share)
