"""What bounds the calls of a device, and what its policy says of them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

from twoshift.errors import InvalidInput
from twoshift.policy.background_queue import Slice
from twoshift.policy.cost import CallCost
from twoshift.types import CallSize, Item

__all__ = ["Call", "Drop", "Idle", "LaneLimits", "LaneUse", "Run", "Slot", "longest_live_s"]

_ONE = CallSize(1, 1, 1, 1)
_EFFICIENT = 8  # times what a call costs by itself
_LEAST_CALL_S = 0.001  # of the host's time


class Slot(enum.StrEnum):
    """A place on the device for a call."""

    SHARED = "shared"  # the only one: calls of both lanes follow each other
    LIVE = "live"  # on a stream that overtakes background calls on the device
    BACKGROUND = "background"  # beside the live one
    WHOLE = "whole"  # all lanes at once, where calls run in lanes side by side


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """What bounds a call. With no SLO there is no live endpoint on the device, and only the caps count."""

    max_rows: int = 1024
    max_tokens: int = 1 << 20
    slo_s: float | None = None
    outside_s: float = 0.0  # what the stages outside the device take of the SLO
    call_budget_s: float | None = None  # overrides the derived length of calls that carry background rows
    quantile: float = 0.9  # of the cost's residual: how cautious predictions are
    tail_margin: float = 0.05  # of two budgets: kept free, so that the tail lies inside that bound and not on it
    min_share: float = 0.0  # of the device, owed to background work whose deadline has no slack
    background_depth: int = 0  # calls in the background slot; 0: there is none, and both lanes share one
    lanes: int = 1  # calls in the shared slot, side by side, each with its part of the device
    live_slowdown: float | None = None  # mean live latency beside background calls over that without, at the most

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.max_tokens < 1:
            raise InvalidInput("max_rows, max_tokens", (self.max_rows, self.max_tokens), "at least 1 each")
        if self.background_depth < 0:
            raise InvalidInput("background_depth", self.background_depth, "at least 0")
        if self.lanes < 1 or (self.lanes > 1 and self.background_depth):
            raise InvalidInput(
                "lanes", self.lanes, "at least 1, and exactly 1 if live calls can overtake background calls"
            )
        if self.slo_s is not None and not (math.isfinite(self.slo_s) and self.slo_s > self.outside_s >= 0):
            raise InvalidInput(
                "slo_s",
                self.slo_s,
                f"a finite SLO above the {self.outside_s} s that a request spends outside the device",
            )
        most_s = math.inf if self.slo_s is None else self.slo_s - self.outside_s
        if self.call_budget_s is not None and not 0 < self.call_budget_s <= most_s:
            accepted = f"above 0 and at most {most_s:g} s: a live row may have to wait for such a call"
            raise InvalidInput("call_budget_s", self.call_budget_s, accepted)
        if self.live_slowdown is not None and not (math.isfinite(self.live_slowdown) and self.live_slowdown >= 1):
            raise InvalidInput("live_slowdown", self.live_slowdown, "a finite factor of at least 1")
        if not 0 <= self.tail_margin < 0.5:
            raise InvalidInput("tail_margin", self.tail_margin, "a share from 0 to below 0.5")
        if not 0 <= self.min_share <= 0.5:
            raise InvalidInput("min_share", self.min_share, "a share from 0 to 0.5: live rows keep half of a call")

    @property
    def live_call_s(self) -> float:
        """Half of what is left of the SLO: a live row may meet a running call and then needs its own."""
        return math.inf if self.slo_s is None else (self.slo_s - self.outside_s) / 2

    @property
    def budget_s(self) -> float:
        """The longest call that may carry background rows; most are only as long as the curve's knee needs."""
        return self.live_call_s if self.call_budget_s is None else self.call_budget_s


def longest_live_s(cost: CallCost, limits: LaneLimits) -> float:
    """Of a call of live rows.

    In a lane it ends where it hardly gets cheaper by the row: while it runs another one is answered, and begins.
    """
    if limits.lanes == 1:
        return limits.live_call_s
    return min(limits.live_call_s, _EFFICIENT * max(_LEAST_CALL_S, cost.seconds(_ONE)))


class Call(NamedTuple):
    """One forward pass."""

    number: int
    live: tuple[Item, ...]
    background: tuple[Slice, ...]
    size: CallSize
    predicted_s: float
    slot: Slot = Slot.SHARED


class Run(NamedTuple):
    """Launch this call now."""

    call: Call


@dataclass(frozen=True, slots=True)
class Drop:
    """Refuse these now: live rows that can no longer make it, or background rows no call may hold."""

    live: tuple[Item, ...]
    background: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to launch."""

    until_s: float | None = None  # None: until something arrives or the running call ends


@dataclass(slots=True)
class LaneUse:
    """What a lane has had of the device; over all lanes it sums to what the device did."""

    rows: int = 0
    tokens: int = 0
    device_s: float = 0.0
    riding_rows: int = 0
    output_tokens: int = 0  # that a language model generated
    output_s: float = 0.0  # of the device time: for those, and not for the prompts
