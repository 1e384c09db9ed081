"""Whether rows are quick enough to be prepared on the loop: a thread for each request costs more than most of them."""

from __future__ import annotations

from twoshift.policy.host import LinearCost

__all__ = ["PrepareTime"]

_FEW = 2_000  # characters, that the loop prepares before anybody knows what they cost
_QUICK_S = 0.0005  # of the processor
_WAITED_S = 0.001  # what takes less has not waited for anything
_THREAD_S = 0.0001  # about what a thread costs a request: as long may one wait on the loop, on the average
_RECENT = 256  # requests of which that is the average; one stall of the machine is not what a model does
_SOME = 16  # after the first ones, every so many is looked at
_SURE = 64  # requests; of a user's code, that are prepared in threads first


class PrepareTime:
    """Of one model, by the characters of a request. Learned where it is prepared, in whatever thread."""

    __slots__ = ("_cost", "_is_users", "_seen", "_waits_s")

    def __init__(self, is_users: bool) -> None:
        """`is_users`: it is a user's own code, which may wait for anything."""
        self._is_users = is_users
        self._cost, self._seen = LinearCost(), 0
        self._waits_s = 0.0  # of a request, on the average

    def is_quick(self, characters: int) -> bool:
        """Whether the loop may do it."""
        if self._is_users and (self._seen < _SURE or self._waits_s > _THREAD_S):
            return False
        return characters < _FEW if self._cost.seen < _SURE else self._cost.seconds(characters) <= _QUICK_S

    def observed(self, characters: int, processor_s: float, waited_s: float) -> None:
        """One has taken so long, and has waited so long for something that is not this process."""
        self._seen += 1
        if self._seen <= _SURE or self._seen % _SOME == 0:
            self._cost.observed(characters, processor_s)
        if self._is_users:
            self._waits_s += ((waited_s if waited_s > _WAITED_S else 0.0) - self._waits_s) / _RECENT
