"""What calls cost the interpreter in the engine's own thread."""

from __future__ import annotations

from typing import Protocol

__all__ = ["HostTime"]

_LEARNED = 0.1


class _Turns(Protocol):
    """Of background work in this interpreter."""

    def also(self, seconds: float) -> None:
        """So much more of it was done."""
        ...


class HostTime:
    """Processor time of a live row, as of late; one thread writes it, and any may read it."""

    __slots__ = ("_runs_python", "row_after_s", "row_s", "turns")

    def __init__(self, runs_python: bool) -> None:
        """Where the model is Python itself, its calls take the interpreter, too."""
        self._runs_python = runs_python
        self.turns: _Turns | None = None  # told of background calls, where a loop answers live requests beside them
        self.row_s = 0.0  # of a row
        self.row_after_s = 0.0  # of that, once its call has ended

    def observed(self, live: int, background: int, formed_s: float, ran_s: float, delivered_s: float) -> None:
        """A call of so many rows of each kind: to form it, to run it, and to hand its results out."""
        taken_s = formed_s + delivered_s + (ran_s if self._runs_python else 0.0)
        if not background:
            self.row_s += _LEARNED * (taken_s / live - self.row_s)
            self.row_after_s += _LEARNED * (delivered_s / live - self.row_after_s)
        elif self.turns is not None:
            self.turns.also(taken_s * background / (live + background))
