"""How much of an interpreter background work may have, where live requests are read and answered by the same one."""

from __future__ import annotations

import math

__all__ = ["HostTurnsPolicy"]

_LEAST = 0.03  # of a core: a job goes on, however much live requests have to be done for
# Of the interpreter, for each part that live requests take: beside other threads the loop waits for it at every turn
_LEAVES = 4.0
_QUIET = 0.01  # of a core: live requests that take less are hardly there
_LEAST_BOUNDED, _QUIET_BOUNDED = 0.005, 0.001  # the same two where somebody bounds what live requests may lose
_LOOK_S = 0.05  # over which the loop's part is measured
_MOST_REST_S = 0.25


class HostTurnsPolicy:
    """Rests between pieces of background work, so that it has no more than its share. Times are on two clocks: one for
    people, and the loop's own processor time.
    """

    def __init__(self, live_slowdown: float | None = None) -> None:
        """Live requests may take so many times as long beside background work: at the most they wait for all of it."""
        self._most = 1.0 if live_slowdown is None else min(1.0, live_slowdown - 1.0)
        self._least = min(_LEAST, max(_LEAST_BOUNDED, self._most))
        self._quiet = _QUIET if live_slowdown is None else _QUIET_BOUNDED
        self.share = 1.0  # of a core, that background work may have
        self._looked_s, self._loop_s = -math.inf, 0.0
        self._worked_s = 0.0  # of background work that no rest was asked for yet
        self._paid_s = -math.inf  # when all work before that has had its rest

    def worked(self, seconds: float) -> None:
        """Background work took so much of the interpreter."""
        self._worked_s += seconds

    def rest_s(self, now_s: float, loop_s: float, owed_share: float = 0.0) -> float:
        """How long background work rests now; `loop_s` is what the loop has had of the processor since it began.

        `owed_share` is what the work has in any case, because it would miss its deadline.
        """
        passed_s = now_s - self._looked_s
        if passed_s >= _LOOK_S:
            live = (loop_s - self._loop_s) / passed_s
            self.share = 1.0 if live < self._quiet else max(self._least, min(self._most, 1.0 - _LEAVES * live))
            self._looked_s, self._loop_s = now_s, loop_s
        share, worked_s, self._worked_s = max(self.share, owed_share), self._worked_s, 0.0
        began_s = max(self._paid_s, now_s - worked_s)
        self._paid_s = min(now_s + _MOST_REST_S, began_s + worked_s / share)
        return max(0.0, self._paid_s - now_s) if share < 1.0 else 0.0
