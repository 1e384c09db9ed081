"""Signatures of rows as the policy has them: numbers."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

__all__ = ["Signatures"]

_MOST = 1024  # remembered: clients choose the sizes of free axes


class Signatures:
    """Equal signatures have equal numbers; the engine's lock guards it."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self._numbers: dict[Hashable, int] = {None: 0}

    def number(self, signature: Hashable) -> int:
        """0 for None. One that was forgotten gets another number, and at worst runs in a call of its own once more."""
        found = self._numbers.get(signature)
        if found is None:
            if len(self._numbers) >= _MOST:
                self._numbers = {None: 0}
            found = self._numbers[signature] = next(self._count)
        return found
