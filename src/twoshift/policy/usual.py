"""The usual speed of a device, ignoring periods of minutes in which other programs slow it down."""

from __future__ import annotations

import math
import statistics
from collections import deque

__all__ = ["UsualLevel"]

_SPAN_S = 60.0  # whose median is one vote
_FEWEST = 5  # calls of a vote
_MOST = 128  # calls kept of a span
_VOTES = 10
_SURE_VOTES = 5  # before something slower is usual
_RANK = 0.3  # of the votes, the quickest first: most of them may be slow spells
_WORTH_IT = math.log(1.03)


class UsualLevel:
    """Measures how far calls are from the usual level; all levels are logarithms."""

    __slots__ = ("_began_s", "_span", "_votes")

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._span: deque[float] = deque(maxlen=_MOST)
        self._votes: deque[float] = deque(maxlen=_VOTES)

    def observed(self, level: float, ended_s: float) -> float:
        """Take one call, `level` above the usual; returns the correction of the usual level, nearly always 0."""
        self._span.append(level)
        if self._began_s is None:
            self._began_s = ended_s
        if ended_s - self._began_s < _SPAN_S or len(self._span) < _FEWEST:
            return 0.0
        self._began_s = ended_s
        self._votes.append(statistics.median(self._span))
        self._span.clear()
        return self._moved()

    def clear(self) -> None:
        """Forget the observations, because the usual level was set anew."""
        self._began_s = None
        self._span.clear()
        self._votes.clear()

    def _moved(self) -> float:
        votes = self._votes
        shift = sorted(votes)[int(_RANK * len(votes))]
        if abs(shift) < _WORTH_IT or (shift > 0 and len(votes) < _SURE_VOTES):
            return 0.0
        self._votes = deque((each - shift for each in votes), maxlen=_VOTES)
        return shift
