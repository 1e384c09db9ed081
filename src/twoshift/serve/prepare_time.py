"""Whether a user's own preparation is quick enough to be done on the loop: a thread for each costs more than most."""

from __future__ import annotations

__all__ = ["PrepareTime"]

_QUICK_S = 0.0005  # of the processor
_BLOCKED_S = 0.01  # by the clock: it has waited for something
_SURE = 64  # in a row
_LONG = 4096  # that go to threads after one that has waited


class PrepareTime:
    """Of one model; one that waits but once goes to threads for long."""

    __slots__ = ("_left",)

    def __init__(self, waits: bool) -> None:
        """`waits`: it is a user's code, and may."""
        self._left = _SURE if waits else 0  # quick ones, until the loop does them

    @property
    def is_quick(self) -> bool:
        """Whether the loop may do it."""
        return self._left <= 0

    def observed(self, clock_s: float, processor_s: float | None = None) -> None:
        """One has taken so long; on the loop nobody asks for the processor's time."""
        if clock_s > _BLOCKED_S:
            self._left = _LONG
        elif self._left > 0 and (processor_s or 0.0) <= _QUICK_S:
            self._left -= 1
