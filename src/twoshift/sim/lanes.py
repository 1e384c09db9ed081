"""`twoshift sim lanes`: one device, live arrivals, an endless background backlog."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twoshift.errors import InvalidInput
from twoshift.policy.admission import AdmissionPolicy
from twoshift.policy.cost import CallCost
from twoshift.policy.lanes import LaneLimits, LanePolicy
from twoshift.sim.baselines import GreedyPolicy, StrictPolicy, WindowPolicy
from twoshift.sim.device import DeviceLog, SimulatedDevice
from twoshift.sim.traffic import Arrivals, poisson
from twoshift.types import CallSize

__all__ = ["POLICIES", "LanesResult", "LanesSpec", "lane_noise", "simulate_lanes"]

POLICIES: dict[str, Callable[[CallCost, LaneLimits], LanePolicy]] = {
    "greedy": GreedyPolicy,
    "strict": StrictPolicy,
    "twoshift": LanePolicy,
    "window": WindowPolicy,
}


@dataclass(frozen=True, slots=True)
class LanesSpec:
    """A device, its traffic and the policy that runs it."""

    overhead_s: float
    item_s: float
    max_batch: int
    slo_s: float
    load: float
    background: bool = False
    policy: str = "twoshift"
    call_budget_s: float | None = None
    seconds: float = 60.0
    noise: float = 0.0  # spread of the call times around the curve
    seed: int = 1
    trace: Arrivals | None = None

    @property
    def mean_tokens(self) -> float:
        """Tokens of a mean row: an item of a trace costs its share of `item_s`."""
        return float(self.trace.tokens.mean()) if self.trace else 1.0

    @property
    def cost(self) -> CallCost:
        """The device's curve."""
        return CallCost.line(self.overhead_s, self.item_s / self.mean_tokens)

    @property
    def capacity_per_s(self) -> float:
        """Rows a second at the largest batch."""
        return self.max_batch / (self.overhead_s + self.item_s * self.max_batch)

    @property
    def limits(self) -> LaneLimits:
        """The caps and the SLO, as the policy sees them."""
        longest = int(self.trace.tokens.max()) if self.trace else 1
        max_tokens = max(longest, math.ceil(self.max_batch * self.mean_tokens))
        return LaneLimits(self.max_batch, max_tokens, slo_s=self.slo_s, call_budget_s=self.call_budget_s)


@dataclass(frozen=True, slots=True)
class LanesResult:
    """What the callers saw and what the background got."""

    capacity_per_s: float
    offered_per_s: float
    goodput: float  # live rows a second answered inside the SLO
    in_slo: float  # their share of what was offered
    p50_ms: float | None
    p99_ms: float | None
    refused: int
    dropped: int
    background_per_s: float
    busy_share: float
    live_share: float
    latencies_ms: tuple[float, ...]


def lane_noise(spread: float, rng: np.random.Generator) -> Callable[[], float] | None:
    """Lognormal noise around 1 from a buffer; None where there is none."""
    if not spread:
        return None
    values = iter(np.exp(rng.normal(0.0, spread, 1 << 16)).tolist() * 64)
    return lambda: next(values, 1.0)


def simulate_lanes(spec: LanesSpec) -> LanesResult:
    """Run the traffic through the device; the same spec gives the same result."""
    if spec.policy not in POLICIES:
        raise InvalidInput("policy", spec.policy, f"one of {', '.join(POLICIES)}")
    if spec.cost.seconds(CallSize.uniform(1)) > spec.slo_s:
        raise InvalidInput("slo_ms", spec.slo_s * 1e3, "at least the time of a call over one item")
    rng = np.random.default_rng(spec.seed)
    rate_per_s = spec.load * spec.capacity_per_s
    arrivals = spec.trace.rescaled(rate_per_s) if spec.trace else poisson(rate_per_s, spec.seconds, rng)
    policy = POLICIES[spec.policy](spec.cost, spec.limits)
    admission = AdmissionPolicy(policy) if spec.policy == "twoshift" else None
    device = SimulatedDevice(policy, spec.cost, admission, lane_noise(spec.noise, rng))
    length = max(1, round(spec.mean_tokens)) if spec.background else 0
    return _result(spec, arrivals, device.run(arrivals, spec.slo_s, length))


def _result(spec: LanesSpec, arrivals: Arrivals, log: DeviceLog) -> LanesResult:
    offered, horizon_s = len(arrivals.times_s), arrivals.horizon_s
    latencies_ms = np.asarray(log.latencies_s) * 1e3
    p50_ms, p99_ms = np.percentile(latencies_ms, (50, 99)).tolist() if len(latencies_ms) else (None, None)
    return LanesResult(
        capacity_per_s=spec.capacity_per_s,
        offered_per_s=offered / horizon_s,
        goodput=log.in_slo / horizon_s,
        in_slo=log.in_slo / offered if offered else 1.0,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        refused=log.refused,
        dropped=log.dropped,
        background_per_s=log.background_rows / horizon_s,
        busy_share=(log.live_s + log.background_s) / horizon_s,
        live_share=log.live_s / horizon_s,
        latencies_ms=tuple(latencies_ms.tolist()),
    )
