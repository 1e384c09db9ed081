"""Limits of the calls on a device, and the decisions of its policy."""

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
    """A place for a call on the device."""

    SHARED = "shared"  # the only slot: calls of all lanes run one after another
    LIVE = "live"  # on a stream with priority over background calls
    BACKGROUND = "background"  # beside the live slot
    WHOLE = "whole"  # all lanes of the device at once, if it is divided into lanes


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Limits of a call. Without an SLO there is no live endpoint on the device, and only the caps apply."""

    max_rows: int = 1024
    max_tokens: int = 1 << 20
    slo_s: float | None = None
    outside_s: float = 0.0  # part of the SLO for the stages outside the device
    call_budget_s: float | None = None  # overrides the derived length of calls that carry background rows
    quantile: float = 0.9  # quantile of the cost's residual: how cautious predictions are
    tail_margin: float = 0.05  # of two budgets: kept free, so that the tail lies inside that bound and not on it
    min_share: float = 0.0  # share of the device for background work that would miss its deadline
    background_depth: int = 0  # calls in the background slot; 0: live and background share one slot
    lanes: int = 1  # calls that run at the same time, each on its part of the device
    pads: bool = False  # rows of unlike lengths run one after another in a call, each with its own overhead
    live_slowdown: float | None = None  # limit for mean live latency with background calls / without

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.max_tokens < 1:
            raise InvalidInput("max_rows, max_tokens", (self.max_rows, self.max_tokens), "numbers of at least 1")
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
            accepted = f"seconds above 0 and at most {most_s:g}, because a live row may have to wait for such a call"
            raise InvalidInput("call_budget_s", self.call_budget_s, accepted)
        if self.live_slowdown is not None and not (math.isfinite(self.live_slowdown) and self.live_slowdown >= 1):
            raise InvalidInput("live_slowdown", self.live_slowdown, "a finite factor of at least 1")
        if not 0 <= self.tail_margin < 0.5:
            raise InvalidInput("tail_margin", self.tail_margin, "a share from 0 to below 0.5")
        if not 0 <= self.min_share <= 0.5:
            raise InvalidInput(
                "min_share", self.min_share, "a share from 0 to 0.5, because live rows keep at least half of each call"
            )

    @property
    def live_call_s(self) -> float:
        """Half of the remaining SLO: a live row may have to wait for a running call before its own."""
        return math.inf if self.slo_s is None else (self.slo_s - self.outside_s) / 2

    @property
    def budget_s(self) -> float:
        """The longest call that may contain background rows; most calls end earlier, at the knee of the curve."""
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
    """Refuse these rows now: live rows that can no longer meet their deadline, or background rows that fit no call."""

    live: tuple[Item, ...]
    background: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to launch."""

    until_s: float | None = None  # None: until something arrives or the running call ends


@dataclass(slots=True)
class LaneUse:
    """Device time and rows of a lane; the sum over all lanes is what the device did."""

    rows: int = 0
    tokens: int = 0
    device_s: float = 0.0
    riding_rows: int = 0
    output_tokens: int = 0  # tokens generated by a language model
    output_s: float = 0.0  # device time for generated tokens, without prompts
