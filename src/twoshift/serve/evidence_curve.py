"""How the evidence of a rollout grew, for whoever looks at it while it goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from twoshift.policy.rollout_values import Comparison

__all__ = ["EvidenceCurve", "EvidencePoint"]

_MOST, _APART_S = 720, 1.0


class EvidencePoint(NamedTuple):
    """The candidate's share, and the evidence against it by respect."""

    at_unix_s: float
    share: float
    evidence: dict[str, float]


class EvidenceCurve:
    """Of one rollout, in the memory of the server that judges it. One thread adds, any may read."""

    def __init__(self) -> None:
        self._points: deque[EvidencePoint] = deque(maxlen=_MOST)

    def add(self, now_unix_s: float, share: float, figures: Sequence[Comparison]) -> None:
        """What was decided on; not more often than it is worth."""
        if self._points and now_unix_s - self._points[-1].at_unix_s < _APART_S and share == self._points[-1].share:
            return
        self._points.append(EvidencePoint(now_unix_s, share, {each.name: each.evidence for each in figures}))

    def points(self) -> list[EvidencePoint]:
        """The oldest first."""
        return [*self._points.copy()]
