"""Number of workers for a deadline, and the cost of too many or too few."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["FleetAsk", "FleetPlan", "FleetRow", "plan_fleet"]


@dataclass(frozen=True, slots=True)
class FleetAsk:
    """The work, the deadline and the kind of machine."""

    items: float
    rate: float  # items a second that one worker does
    window_s: float
    price_usd_per_hour: float
    spot_discount: float = 0.0
    preemptions_per_hour: float = 0.0  # of one worker
    shard_seconds: float = 60.0  # work that a preemption can throw away
    restart_s: float = 60.0
    straggler_margin: float = 0.1

    def __post_init__(self) -> None:
        for name in ("items", "rate", "window_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, value, "a finite number above 0")
        for name in (
            "price_usd_per_hour",
            "preemptions_per_hour",
            "shard_seconds",
            "restart_s",
            "straggler_margin",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(name, value, "a finite number, 0 or more")
        if not 0 <= self.spot_discount < 1:
            raise InvalidInput("spot_discount", self.spot_discount, "a share of at least 0 and less than 1")
        if min(self.shard_seconds, self.items / self.rate) > self.window_s:
            accepted = f"at most {self.window_s:g} s, which is the window: several workers cannot share a shard"
            raise InvalidInput("shard_seconds", self.shard_seconds, accepted)


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One fleet size. Machines are paid until the window or the job ends, whichever is later."""

    provision: str  # over, right, under
    workers: int
    finish_s: float
    makes_window: bool
    usd: float
    idle_usd: float  # the part of `usd` after the last item; releasing the machines then saves it


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The smallest fleet that meets the window, beside a fleet twice and one half as large."""

    workers: int
    work_s: float  # of one worker, with nothing lost and no margin
    padded_work_s: float  # with the straggler margin and what preemptions throw away
    lost_share: float  # of the paid time
    preemptions: float  # expected over the job
    price_usd_per_hour: float  # after the discount
    rows: tuple[FleetRow, ...]


def plan_fleet(ask: FleetAsk) -> FleetPlan:
    """Number of workers: the work, with margins, divided by the window."""
    work_s = ask.items / ask.rate
    stretch = _preemption_stretch(ask, min(ask.shard_seconds, work_s))
    lost_share = 1 - 1 / stretch
    padded_s = work_s * (1 + ask.straggler_margin) * stretch
    workers = max(1, math.ceil(padded_s / ask.window_s * (1 - 1e-12)))
    price = ask.price_usd_per_hour * (1 - ask.spot_discount)
    sizes = {"over": 2 * workers, "right": workers, "under": max(1, workers // 2)}
    rows = tuple(_row(name, n, padded_s, price, ask) for name, n in sizes.items())
    preemptions = ask.preemptions_per_hour * padded_s / 3600
    return FleetPlan(workers, work_s, padded_s, lost_share, preemptions, price, rows)


def _preemption_stretch(ask: FleetAsk, shard_s: float) -> float:
    """How much longer a shard takes when it is begun again after each preemption, and the restart is waited for.

    With preemptions at rate p a shard of s seconds takes (1 + p*restart) * (exp(p*s) - 1) / p on average: about
    1 + p * (s/2 + restart) times s while p*s is small, and beyond any fleet where it is not.
    """
    per_s = ask.preemptions_per_hour / 3600
    if per_s * shard_s > 10:
        accepted = f"a time far below the {1 / per_s:.3g} s between two preemptions; a longer shard would never finish"
        raise InvalidInput("shard_seconds", ask.shard_seconds, accepted)
    per_shard = per_s * shard_s
    begun_again = math.expm1(per_shard) / per_shard if per_shard > 1e-9 else 1.0
    return (1 + per_s * ask.restart_s) * begun_again


def _row(provision: str, workers: int, padded_s: float, price: float, ask: FleetAsk) -> FleetRow:
    shard_s = min(ask.shard_seconds, ask.items / ask.rate)
    finish_s = max(padded_s / workers, shard_s)  # however many workers, a shard is done by one
    makes_window = finish_s <= ask.window_s * (1 + 1e-9)
    idle_s = max(0.0, ask.window_s - finish_s)
    hourly = workers * price / 3600
    return FleetRow(provision, workers, finish_s, makes_window, hourly * (finish_s + idle_s), hourly * idle_s)
