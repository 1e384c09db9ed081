"""The highest number of replicas needed in a period: a fleet does not shrink below it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

__all__ = ["HighestNeed"]


class HighestNeed:
    """The highest need over the last `span_s`; memory is bounded by the number of distinct needs."""

    def __init__(self, span_s: float, held: Iterable[tuple[float, int]] = ()) -> None:
        """`held` is what another one remembered."""
        self._span_s = span_s
        self._needs = deque(held)  # (last held, need), needs strictly decreasing

    @property
    def is_empty(self) -> bool:
        return not self._needs

    @property
    def highest(self) -> int:
        return self._needs[0][1]

    @property
    def held(self) -> list[tuple[float, int]]:
        """State: when each need was last seen, oldest first."""
        return [*self._needs]

    def __str__(self) -> str:
        return f"the highest number needed in the last {self._span_s:g} s is {self.highest}"

    def add(self, need: int, now_s: float) -> None:
        if self._needs:
            last_s, last = self._needs[-1]
            now_s = max(now_s, last_s)
            # nothing says that the last need ended before now: a gap in the observations is no evidence
            self._needs[-1] = (now_s, last)
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now_s, need))
        while len(self._needs) > 1 and self._needs[0][0] <= now_s - self._span_s:
            self._needs.popleft()
