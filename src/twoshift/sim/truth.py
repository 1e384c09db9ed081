"""What calls really take on a simulated device, whatever its policy believes."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Slot
from twoshift.types import CallSize

__all__ = ["ChangingTruth", "DeviceTruth"]

_DRAWS = 1 << 16


@dataclass(frozen=True, slots=True)
class DeviceTruth:
    """The curve of each slot: for a call alone on the device, and for one beside others."""

    alone: Mapping[Slot, CallCost]
    beside: Mapping[Slot, CallCost]
    spread: float | None = 0.0  # of call times around the median; None: as the curves' own residuals

    @classmethod
    def of(
        cls,
        whole: CallCost,
        lane: CallCost | None = None,
        lane_alone: CallCost | None = None,
        spread: float | None = 0.0,
    ) -> DeviceTruth:
        """A device whose lanes have a curve of their own while others run, and one while none does.

        Where live calls overtake, `lane` is the curve of background calls.
        """
        lane = lane or whole
        alone = dict.fromkeys(Slot, whole) | {Slot.SHARED: lane_alone or lane, Slot.BACKGROUND: lane}
        beside = dict.fromkeys(Slot, whole) | {Slot.SHARED: lane, Slot.BACKGROUND: lane}
        if spread is not None:  # the median: calls scatter around it by `spread`
            alone = {slot: cost.at(0.5) for slot, cost in alone.items()}
            beside = {slot: cost.at(0.5) for slot, cost in beside.items()}
        return cls(alone, beside, spread)

    def luck(self, rng: np.random.Generator) -> Callable[[], float]:
        """Draws what `seconds` wants of each call."""
        if self.spread is None:
            draws = rng.uniform(0.0, 1.0, _DRAWS)
        elif self.spread:
            draws = np.exp(rng.normal(0.0, self.spread, _DRAWS))
        else:
            return lambda: 1.0
        values = itertools.cycle(draws.tolist())
        return lambda: next(values)

    def at(self, now_s: float) -> DeviceTruth:
        """What holds then."""
        return self

    def seconds(self, slot: Slot, size: CallSize, is_beside: bool, luck: float) -> float:
        """Of a whole call."""
        cost = (self.beside if is_beside else self.alone)[slot]
        return cost.seconds(size, luck) if self.spread is None else cost.seconds(size) * luck

    def minds_company(self, slot: Slot) -> bool:
        """Whether others on the device change what a call takes."""
        return self.alone[slot] != self.beside[slot]


class ChangingTruth:
    """A device that is another one from time to time: slowed down by others on a shared machine, say."""

    def __init__(self, changes: Sequence[tuple[float, DeviceTruth]]) -> None:
        """From when on each holds, rising; the first holds before that, too."""
        self._times_s = [at_s for at_s, _ in changes]
        self._truths = [truth for _, truth in changes]

    def at(self, now_s: float) -> DeviceTruth:
        """What holds then."""
        return self._truths[max(0, bisect.bisect_right(self._times_s, now_s) - 1)]
