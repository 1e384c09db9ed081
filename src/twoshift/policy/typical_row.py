"""The typical row of live traffic; recent rows count most."""

from __future__ import annotations

from twoshift.policy.plan.row import RowSize

__all__ = ["TypicalRow"]

_FADES = 1 / 1024  # of what is known, with each row: the last thousand or so count
_MANY = 512  # rows of one call, from which on half of the rest is kept
_ENOUGH_ROWS = 8.0  # and the guess counts no more


class TypicalRow:
    """Mean row size, weighted by recency."""

    __slots__ = ("_rows", "_squares", "_tokens")

    def __init__(self) -> None:
        self._rows = self._tokens = self._squares = 0.0

    def observed(self, rows: int, tokens: int, squares: float) -> None:
        """Rows were answered."""
        kept = 1.0 - rows * _FADES if rows < _MANY else 0.5
        self._rows = self._rows * kept + rows
        self._tokens = self._tokens * kept + tokens
        self._squares = self._squares * kept + squares

    def size(self, guess: RowSize) -> RowSize:
        """The typical row; a guess until rows were seen."""
        guessed = max(0.0, _ENOUGH_ROWS - self._rows)
        tokens = self._tokens + guessed * guess.tokens
        squares = self._squares + guessed * guess.tokens * guess.longest
        return RowSize(max(1.0, tokens / (self._rows + guessed)), max(1.0, squares / max(1.0, tokens)))
