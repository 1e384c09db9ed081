"""What live rows cost the interpreter in the engine's own thread."""

from __future__ import annotations

__all__ = ["HostTime"]

_LEARNED = 0.1


class HostTime:
    """Processor time of a row, as of late; one thread writes it, and any may read it."""

    __slots__ = ("_runs_python", "row_after_s", "row_s")

    def __init__(self, runs_python: bool) -> None:
        """Where the model is Python itself, its calls take the interpreter, too."""
        self._runs_python = runs_python
        self.row_s = 0.0  # of a row
        self.row_after_s = 0.0  # of that, once its call has ended

    def observed(self, rows: int, formed_s: float, ran_s: float, delivered_s: float) -> None:
        """A call of live rows: to form it, to run it, and to hand its results out."""
        taken_s = formed_s + delivered_s + (ran_s if self._runs_python else 0.0)
        self.row_s += _LEARNED * (taken_s / rows - self.row_s)
        self.row_after_s += _LEARNED * (delivered_s / rows - self.row_after_s)
