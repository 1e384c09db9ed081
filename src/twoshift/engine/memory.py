"""How many tokens a call may hold: lowered when the memory runs out, raised again slowly."""

from __future__ import annotations

__all__ = ["MemoryCap"]

_AFTER_CALLS = 200  # full calls that fitted, before more is tried
_RAISE = 1.1


class MemoryCap:
    """A cap that follows what the device can hold."""

    __slots__ = ("_cap", "_ceiling", "_fitted", "_most")

    def __init__(self, max_tokens: int) -> None:
        self._most = max_tokens  # as configured
        self._cap = max_tokens
        self._ceiling = max_tokens  # the smallest call that is known to fail: never tried again as it is
        self._fitted = 0  # full calls since the last change

    def ran_out(self, tokens: int) -> int:
        """A call of that size did not fit: the new cap."""
        self._ceiling = min(self._ceiling, max(1, tokens - 1))
        self._cap = max(1, min(self._cap, tokens) // 2)
        self._fitted = 0
        return self._cap

    def fitted(self, tokens: int) -> int | None:
        """A call of that size fitted: a higher cap, where it is time to try one."""
        if self._cap >= self._most or tokens < self._cap * 0.8:
            return None
        self._fitted += 1
        if self._fitted < _AFTER_CALLS:
            return None
        self._fitted = 0
        if self._cap >= self._ceiling:
            self._ceiling = self._most  # it has held for long: what failed then may fit now
        raised = min(self._most, self._ceiling, max(self._cap + 1, int(self._cap * _RAISE)))
        if raised == self._cap:
            return None
        self._cap = raised
        return raised
