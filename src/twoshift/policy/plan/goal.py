"""Devices for a goal: batch rows by a deadline beside live requests within an objective, on one fleet or two."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.plan.row import Curve, RowSize
from twoshift.policy.plan.table import largest_batch

__all__ = ["GoalAsk", "GoalFleet", "GoalPlan", "plan_goal"]

_LARGEST_CALL = 4096  # rows


@dataclass(frozen=True, slots=True)
class GoalAsk:
    """The goal; the cost curve says what a device can do."""

    items: float
    window_s: float
    live_per_s: float
    p99_s: float
    price_usd_per_hour: float
    headroom: float = 0.3  # of a device that live requests leave free, for peaks
    margin: float = 0.1  # more work than there is, for slow shards
    spares: int = 1  # devices that may fail

    def __post_init__(self) -> None:
        for name in ("items", "live_per_s", "price_usd_per_hour"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInput(name, getattr(self, name), "a finite number, 0 or more")
        for name in ("window_s", "p99_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInput(name, getattr(self, name), "a finite number of seconds above 0")
        if not 0 <= self.headroom < 1:
            raise InvalidInput("headroom", self.headroom, "a share of at least 0 and less than 1")
        for name in ("margin", "spares"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInput(name, getattr(self, name), "a finite number, 0 or more")


@dataclass(frozen=True, slots=True)
class GoalFleet:
    """Number of devices, how long they are rented, and how busy they are."""

    name: str
    devices: int
    spares: int  # of them
    busy: float  # share of the others
    finish_s: float | None  # of the batch work; None: it has none
    usd: float


@dataclass(frozen=True, slots=True)
class GoalPlan:
    """One fleet compared with two."""

    live_per_device: float  # requests a second at the objective, before the headroom
    batch_per_device: float  # rows a second on a device of its own
    beside_per_device: float  # rows a second in calls that a live request may wait for
    one: GoalFleet
    live: GoalFleet
    batch: GoalFleet

    @property
    def two_usd(self) -> float:
        """Cost of two fleets."""
        return self.live.usd + self.batch.usd

    @property
    def two_devices(self) -> int:
        """Devices of two fleets."""
        return self.live.devices + self.batch.devices


def plan_goal(ask: GoalAsk, curve: Curve, row: RowSize) -> GoalPlan:
    """Devices for the goal; raises InvalidInput where one request alone takes longer than the objective."""
    alone_s = curve.seconds(row.call(1))
    # A request waits for the call before its own, and then for its own
    batch = min(_LARGEST_CALL, largest_batch(curve, ask.p99_s / 2, row))
    if batch < 1:
        raise InvalidInput(
            "p99_ms",
            f"{1e3 * ask.p99_s:g}",
            f"a number of at least {2e3 * alone_s:.3g}; two calls with one row each take this many milliseconds",
        )
    live = batch / curve.seconds(row.call(batch))
    beside = _rate(curve, row, min(_LARGEST_CALL, max(1, largest_batch(curve, ask.p99_s - alone_s, row))))
    alone = max(_rate(curve, row, 1 << power) for power in range(_LARGEST_CALL.bit_length()))
    work = ask.items * (1 + ask.margin) / ask.window_s  # rows a second
    live_devices = math.ceil(ask.live_per_s / (live * (1 - ask.headroom)) - 1e-9)
    both = math.ceil(work / beside + ask.live_per_s / live - 1e-9)
    one = max(live_devices, both, 1)
    return GoalPlan(
        live_per_device=live,
        batch_per_device=alone,
        beside_per_device=beside,
        one=_fleet(ask, "one fleet", one, ask.live_per_s / live, beside),
        live=_fleet(ask, "live alone", live_devices, ask.live_per_s / live, 0.0),
        batch=_fleet(ask, "batch alone", math.ceil(work / alone - 1e-9), 0.0, alone),
    )


def _rate(curve: Curve, row: RowSize, batch: int) -> float:
    return batch / curve.seconds(row.call(batch))


def _fleet(ask: GoalAsk, name: str, devices: int, live_devices: float, batch_per_device: float) -> GoalFleet:
    """`live_devices`: as many as live requests keep busy. A batch alone needs no spare: it may be late by a restart."""
    spares = ask.spares if live_devices and devices else 0
    free = devices - live_devices
    done_s = ask.items / (free * batch_per_device) if batch_per_device and ask.items and free > 0 else None
    batch_share = free * min(1.0, (done_s or 0.0) / ask.window_s)
    busy = min(1.0, (live_devices + batch_share) / devices) if devices else 0.0
    hired_s = ask.window_s if live_devices or done_s is None else done_s  # a batch alone gives its devices back
    usd = (devices + spares) * ask.price_usd_per_hour * hired_s / 3600
    return GoalFleet(name, devices + spares, spares, busy, done_s, usd)
