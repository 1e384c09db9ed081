"""Whether rows are quick enough to be prepared on the loop: a thread for each request costs more than most of them."""

from __future__ import annotations

from twoshift.policy.host import LinearCost

__all__ = ["PrepareTime"]

_FEW = 2_000  # characters, that the loop prepares before anybody knows what they cost
_QUICK_S = 0.0005  # of the processor
_BLOCKED_S = 0.01  # by the clock: a user's code has waited for something
_SOME = 7  # after the first ones, every so many is looked at
_SURE = 64  # requests; in a row, of a user's code that has not
_LONG = 4096  # that go to threads after one that has


class PrepareTime:
    """Of one model, by the characters of a request. Learned where it is prepared, in whatever thread."""

    __slots__ = ("_cost", "_is_users", "_left", "_seen")

    def __init__(self, is_users: bool) -> None:
        """`is_users`: it is a user's own code, which may wait for anything."""
        self._is_users = is_users
        self._left = _SURE if is_users else 0  # requests, until the loop may do them
        self._cost, self._seen = LinearCost(), 0

    def is_quick(self, characters: int) -> bool:
        """Whether the loop may do it."""
        if self._left > 0:
            return False
        return characters < _FEW if self._cost.seen < _SURE else self._cost.seconds(characters) <= _QUICK_S

    def observed(self, characters: int, clock_s: float, processor_s: float) -> None:
        """One has taken so long."""
        self._seen += 1
        if self._seen <= _SURE or self._seen % _SOME == 0:
            self._cost.observed(characters, processor_s)
        if not self._is_users:
            return
        if clock_s > _BLOCKED_S:
            self._left = _LONG
        elif self._left > 0:
            self._left -= 1
