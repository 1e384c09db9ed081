"""`twoshift sim lanes`: one device, live arrivals, an endless background backlog."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twoshift.errors import InvalidInput
from twoshift.policy.admission import AdmissionPolicy
from twoshift.policy.cost import CallCost
from twoshift.policy.journal import RecordedAdmission, RecordedLanes
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.lanes import LanePolicy
from twoshift.sim.baselines import GreedyPolicy, StrictPolicy, WindowPolicy
from twoshift.sim.device import DeviceLog, SimulatedDevice
from twoshift.sim.traffic import Arrivals, poisson
from twoshift.types import CallSize

__all__ = ["POLICIES", "LanesResult", "LanesSpec", "check_slo", "record_lanes", "simulate_lanes"]

_MOST_EVENTS = 5_000_000

POLICIES: dict[str, Callable[[CallCost, LaneLimits], LanePolicy]] = {
    "greedy": GreedyPolicy,
    "strict": StrictPolicy,
    "twoshift": LanePolicy,
    "window": WindowPolicy,
}


@dataclass(frozen=True, slots=True)
class LanesSpec:
    """A device, its traffic and the policy that runs it."""

    cost: CallCost
    max_batch: int
    slo_s: float
    load: float
    background: bool = False
    policy: str = "twoshift"
    call_budget_s: float | None = None
    seconds: float = 60.0
    noise: float = 0.0  # spread of the call times around the curve
    seed: int = 1
    row_tokens: int = 1  # of a live row where there is no trace, and of a background row
    trace: Arrivals | None = None

    @property
    def capacity_per_s(self) -> float:
        """Rows a second at the largest batch."""
        return self.max_batch / self.cost.seconds(CallSize.uniform(self.max_batch, self.row_tokens))

    @property
    def limits(self) -> LaneLimits:
        """The caps and the SLO, as the policy sees them."""
        longest = int(self.trace.tokens.max()) if self.trace else 1
        max_tokens = max(longest, self.max_batch * self.row_tokens)
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


def _noise(spread: float, rng: np.random.Generator) -> Callable[[], float] | None:
    """Lognormal noise around 1; None where there is none."""
    if not spread:
        return None
    values = itertools.cycle(np.exp(rng.normal(0.0, spread, 1 << 16)).tolist())
    return lambda: next(values)


def simulate_lanes(spec: LanesSpec, progress: Callable[[float], None] | None = None) -> LanesResult:
    """Run the traffic through the device; the same spec gives the same result."""
    _check(spec)
    policy = POLICIES[spec.policy](spec.cost, spec.limits)
    return _run(spec, policy, AdmissionPolicy(policy) if spec.policy == "twoshift" else None, progress)


def record_lanes(
    spec: LanesSpec, sink: Callable[[list[Any]], None], progress: Callable[[float], None] | None = None
) -> LanesResult:
    """The same with our own policy, every event and decision handed to `sink`."""
    _check(spec)
    policy = RecordedLanes(spec.cost, spec.limits, sink)
    return _run(spec, policy, RecordedAdmission(policy), progress)


def _check(spec: LanesSpec) -> None:
    """Refuse what cannot be simulated, by name."""
    if spec.policy not in POLICIES:
        raise InvalidInput("policy", spec.policy, f"one of {', '.join(POLICIES)}")
    check_slo(spec)
    rate_per_s = spec.load * spec.capacity_per_s
    seconds = len(spec.trace.times_s) / rate_per_s if spec.trace else spec.seconds
    events = seconds * max(rate_per_s, spec.capacity_per_s / spec.max_batch)
    if events > _MOST_EVENTS:
        most_s = _MOST_EVENTS / events * seconds
        raise InvalidInput("seconds", f"{seconds:g}s", f"at most {most_s:.3g}s: {_MOST_EVENTS:,} rows or calls")


def check_slo(spec: LanesSpec) -> None:
    """Refuse an SLO that an idle device cannot keep."""
    alone_ms = 1e3 * spec.cost.seconds(CallSize.uniform(1, spec.row_tokens), spec.limits.quantile)
    if alone_ms > spec.slo_s * 1e3:
        raise InvalidInput("slo_ms", spec.slo_s * 1e3, f"at least the {alone_ms:.4g} ms of a call over one item")


def _run(
    spec: LanesSpec,
    policy: LanePolicy,
    admission: AdmissionPolicy | None,
    progress: Callable[[float], None] | None = None,
) -> LanesResult:
    """The traffic of `spec` through a policy that is already made."""
    rng = np.random.default_rng(spec.seed)
    rate_per_s = spec.load * spec.capacity_per_s
    if spec.trace:
        arrivals = spec.trace.rescaled(rate_per_s)
    else:
        arrivals = poisson(rate_per_s, spec.seconds, rng, spec.row_tokens)
    device = SimulatedDevice(policy, spec.cost, admission, _noise(spec.noise, rng), progress)
    return _result(spec, arrivals, device.run(arrivals, spec.slo_s, spec.row_tokens if spec.background else 0))


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
