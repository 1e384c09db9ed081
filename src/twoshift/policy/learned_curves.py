"""The learned cost curves of a device, and the predictions that its policy decides with."""

from __future__ import annotations

from collections.abc import Callable

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, LaneLimits, Slot, longest_live_s
from twoshift.policy.running_calls import RunningCalls
from twoshift.policy.slot_curves import SlotCurves
from twoshift.types import CallSize

__all__ = ["FORGET_S", "MOST_WRONG", "LearnedCurves"]

_EPSILON_S = 1e-9
_BESIDE = 0.8  # of a call in a lane: so long others run in the other lanes
_LONG = 0.4  # of the longest live call
MOST_WRONG = 10.0  # times too slow that a curve may be: more than that needs no evidence
FORGET_S = 1.0  # of silence, after which what was learned about a slow device is tried anew


class LearnedCurves:
    """The cost curves of a device's slots, learned from its calls."""

    def __init__(
        self, cost: CallCost, limits: LaneLimits, running: RunningCalls, lane_cost: CallCost | None = None
    ) -> None:
        """`lane_cost` is the curve of a call in a lane, where it is known already."""
        self._profile, self._limits, self._running = cost, limits, running
        self.live_slot = Slot.LIVE if limits.background_depth else Slot.SHARED
        self.background_slot = Slot.BACKGROUND if limits.background_depth else Slot.SHARED
        self.whole_slot = Slot.WHOLE if limits.lanes > 1 else self.live_slot
        self.slots = SlotCurves(cost, limits, lane_cost)
        self.cautious, self._usual = self.slots.cautious, self.slots.usual
        # Calls to learn from before the next decision, and when they ended: a refit takes its time, answers go first
        self.lessons: list[tuple[Slot, CallSize, float, float]] = []
        self.changed: tuple[Callable[[], None], ...] = ()  # told of each new price
        self._price()

    @property
    def cost(self) -> CallCost:
        """The learned curve of calls with background rows."""
        self.learn()
        return self.slots.learners[self.background_slot].own

    @property
    def whole_cost(self) -> CallCost:
        """The learned curve of live calls that have the device to themselves."""
        self.learn()
        return self.slots.learners[self.whole_slot].cost

    def usual_pace(self, size: CallSize) -> float:
        """Usual time of such a call, relative to the profile."""
        self.learn()
        # In a lane the profile is only a bound: that a call is quicker there says nothing about it.
        slots = (self.whole_slot,) if self._limits.lanes > 1 else (self.whole_slot, self.background_slot)
        return min(self.slots.learners[slot].usual.seconds(size) for slot in slots) / self._profile.seconds(size)

    def predict_s(self, size: CallSize, slot: Slot | None = None) -> float:
        """The cautious prediction with which every decision is made; for a live call by default."""
        return (self._live if slot is None else self.cautious[slot]).seconds(size)

    def ever_s(self, size: CallSize, whole: bool = True) -> float:
        """What it may take at the best, usually or now: decides whether a row can ever fit."""
        slot = self.whole_slot if whole else self.live_slot
        return min(self._usual[slot].seconds(size), self.cautious[slot].seconds(size))

    def fastest_s(self, size: CallSize, whole: bool, now_s: float) -> float | None:
        """Time of the fastest recent call of about this size; None if there were too few."""
        self.learn()
        return self.slots.learners[self.whole_slot if whole else self.live_slot].fastest_s(size, now_s)

    def surely_outlasts(self, size: CallSize, now_s: float) -> bool:
        """Whether no call with background rows can hold these: calls of about their size have shown it lately."""
        if size.tokens > self._limits.max_tokens:
            return True
        fastest_s = self.fastest_s(size, True, now_s)
        return (self.ever_s(size) / MOST_WRONG if fastest_s is None else fastest_s) > self._limits.budget_s + _EPSILON_S

    def tells(self, call: Call, elapsed_s: float, device_s: float | None) -> bool:
        """Whether a call says what calls take under load: one in a lane that is short, or by itself, is quicker."""
        lanes = self._limits.lanes
        if lanes == 1 or call.slot is not Slot.SHARED or device_s is None:
            return True
        beside_s = (elapsed_s - device_s) * lanes / (lanes - 1)
        return beside_s >= _BESIDE * elapsed_s and call.predicted_s >= _LONG * self.live_s

    def learn(self) -> None:
        """Learn from the calls that have ended."""
        for lesson in self.lessons:
            if self.slots.observed(*lesson):
                self._reprice()
        self.lessons.clear()

    def believe_again(self, now_s: float) -> bool:
        """A curve that lets nothing run learns nothing: after a silence, try the device as it was measured."""
        running = self._running
        if running.calls or now_s - running.quiet_since_s < FORGET_S - _EPSILON_S or not self.slots.forget():
            return False
        self._reprice()
        return True

    def age(self, now_s: float) -> None:
        """Forget what was learned too long ago, where nothing runs that could say more."""
        if now_s > self.slots.stale_s and not self._running.calls and not self.lessons and self.slots.forget():
            self._reprice()

    def slow_down(self, factor: float, now_s: float) -> None:
        """The device is `factor` times as slow as the profile says for now, as calls outside this policy have shown."""
        self.slots.slow_down(factor, now_s)
        self._reprice()

    def _reprice(self) -> None:
        self._price()
        for tell in self.changed:
            tell()

    def _price(self) -> None:
        """Update the values that are derived from the curves."""
        self._live = live = self.cautious[self.live_slot]
        self.margin = self.slots.margin(self.live_slot)  # of a prediction, that is caution
        self.live_s = longest_live_s(live, self._limits)
        self.slowest = live.at_least(self.cautious[self.whole_slot])
