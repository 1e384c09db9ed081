"""`twoshift sim lanes`: one device, live arrivals, an endless background backlog."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twoshift.errors import InvalidInput, Malformed
from twoshift.policy.admission import AdmissionPolicy
from twoshift.policy.cost import CallCost
from twoshift.policy.journal import RecordedAdmission, RecordedLanes
from twoshift.policy.lane_values import LaneLimits, longest_live_s
from twoshift.policy.lanes import LanePolicy
from twoshift.sim.baselines import GreedyPolicy, StrictPolicy, WindowPolicy
from twoshift.sim.events import EventQueue
from twoshift.sim.host import HostCosts, SimulatedHost
from twoshift.sim.server import Node, ServerLog, SimulatedServer, bytes_of
from twoshift.sim.traffic import Arrivals, poisson
from twoshift.sim.truth import ChangingTruth, DeviceTruth
from twoshift.types import CallSize

__all__ = ["POLICIES", "LanesResult", "LanesSpec", "check_slo", "record_lanes", "serve_arrivals", "simulate_lanes"]

_MOST_EVENTS = 5_000_000
_BLOCK_ROWS = 4096
_BACKGROUND_DEPTH = 2  # as the engine has it

POLICIES: dict[str, Callable[[CallCost, LaneLimits], LanePolicy]] = {
    "greedy": GreedyPolicy,
    "strict": StrictPolicy,
    "twoshift": LanePolicy,
    "window": WindowPolicy,
}


@dataclass(frozen=True, slots=True)
class LanesSpec:
    """A server with its devices, its traffic and the policy that runs each device."""

    cost: CallCost
    max_batch: int
    slo_s: float
    load: float
    background: bool = False
    policy: str = "twoshift"
    call_budget_s: float | None = None
    seconds: float = 60.0
    noise: float | None = 0.0  # spread of the call times around the curve; None: as the curves' own residuals
    seed: int = 1
    row_tokens: int = 1  # of a live row where there is no trace, and of a background row
    trace: Arrivals | None = None
    lanes: int = 1  # calls side by side on a device
    lane_cost: CallCost | None = None  # of a call in a lane; None: it takes as many times as long as there are lanes
    overtaking: bool = False  # live calls overtake background calls, as on a GPU
    replicas: int = 1
    host: HostCosts | None = None  # of each process with a device
    front: HostCosts | None = None  # of the process in front of several
    rows: int = 1  # of a request, without a trace
    background_lengths: tuple[int, ...] = ()  # of a block of background rows; none: all of row_tokens
    given: LaneLimits | None = None  # a server's own; None: they follow from the rest
    # true curves of whole calls and of calls in a lane, from when on they hold; none: as the policy begins with
    changes: tuple[tuple[float, CallCost, CallCost], ...] = ()

    @property
    def capacity_per_s(self) -> float:
        """Rows a second of all replicas, in the largest calls: of `max_batch`, or of what a server's SLO allows."""
        rows = self.max_batch if self.given is None else self._live_rows
        call_s = self.in_lane.seconds(self._call(rows))
        return self.replicas * self.lanes * rows / call_s

    @property
    def _live_rows(self) -> int:
        """The most typical rows in a live call."""
        limits, cost = self.limits, self.in_lane.at(self.limits.quantile)
        most = min(limits.max_rows, limits.max_tokens // self.row_tokens)
        longest_s = longest_live_s(cost, limits)
        return max(1, bisect.bisect_right(range(1, most + 1), longest_s, key=lambda n: cost.seconds(self._call(n))))

    def _call(self, rows: int) -> CallSize:
        return CallSize.uniform(rows, self.row_tokens)

    @property
    def in_lane(self) -> CallCost:
        """The curve of a call in a lane."""
        if self.lane_cost is not None:
            return self.lane_cost
        return self.cost if self.lanes == 1 else self.cost.scaled(self.lanes)

    @property
    def limits(self) -> LaneLimits:
        """The caps and the SLO, as the policy sees them."""
        if self.given is not None:
            return self.given
        longest = int(self.trace.tokens.max()) if self.trace else 1
        max_tokens = max(longest, self.max_batch * self.row_tokens, *self.background_lengths, 1)
        return LaneLimits(
            self.max_batch,
            max_tokens,
            slo_s=self.slo_s,
            call_budget_s=self.call_budget_s,
            background_depth=_BACKGROUND_DEPTH if self.overtaking else 0,
            lanes=self.lanes,
        )

    @property
    def background_block(self) -> tuple[int, ...]:
        """The lengths of the rows of a block of background rows; none: there is no backlog."""
        if not self.background:
            return ()
        return self.background_lengths or (self.row_tokens,) * _BLOCK_ROWS


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
    host_share: float  # of the time, that the interpreter of a process with a device is busy
    front_share: float
    latencies_ms: tuple[float, ...]


def simulate_lanes(spec: LanesSpec, progress: Callable[[float], None] | None = None) -> LanesResult:
    """Run the traffic through the server; the same spec gives the same result."""
    _check(spec)
    return _run(spec, _plain_node(spec), progress)


def record_lanes(
    spec: LanesSpec, sink: Callable[[list[Any]], None], progress: Callable[[float], None] | None = None
) -> LanesResult:
    """The same with our own policy on one device, every event and decision handed to `sink`."""
    _check(spec)
    if spec.replicas > 1:
        raise InvalidInput(
            "replicas", spec.replicas, "1 replica with --record, which records the decisions of one device"
        )

    def node(host: SimulatedHost) -> Node:
        policy = RecordedLanes(spec.cost, spec.limits, sink, spec.lane_cost)
        return Node(policy, RecordedAdmission(policy), host)

    return _run(spec, node, progress)


def serve_arrivals(
    spec: LanesSpec, arrivals: Arrivals, rng: np.random.Generator | None = None
) -> tuple[ServerLog, SimulatedServer]:
    """These very arrivals, whatever the spec says of load and traffic."""
    return _serve(spec, arrivals, _plain_node(spec), rng or np.random.default_rng(spec.seed), None)


def _plain_node(spec: LanesSpec) -> Callable[[SimulatedHost], Node]:
    def node(host: SimulatedHost) -> Node:
        if spec.policy != "twoshift":
            return Node(POLICIES[spec.policy](spec.cost, spec.limits), None, host)
        policy = LanePolicy(spec.cost, spec.limits, spec.lane_cost)
        return Node(policy, AdmissionPolicy(policy), host)

    return node


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
        if spec.trace:
            fit = f"at most {most_s:.3g}s of requests at this --load, but the trace has {seconds:.3g}s"
            raise Malformed("trace", f"{fit}; shorten the trace")
        accepted = f"at most {most_s:.3g}s: one simulation can have at most {_MOST_EVENTS:,} rows or calls"
        raise InvalidInput("seconds", f"{seconds:g}s", accepted)


def check_slo(spec: LanesSpec) -> None:
    """Refuse an SLO that an idle device cannot keep."""
    alone_ms = 1e3 * spec.cost.seconds(CallSize.uniform(1, spec.row_tokens), spec.limits.quantile)
    if alone_ms > spec.slo_s * 1e3:
        raise InvalidInput(
            "slo_ms",
            spec.slo_s * 1e3,
            f"a number of at least {alone_ms:.4g}; a call with one item takes this many milliseconds",
        )


def _run(
    spec: LanesSpec, node: Callable[[SimulatedHost], Node], progress: Callable[[float], None] | None = None
) -> LanesResult:
    """The traffic of `spec` through such nodes."""
    rng = np.random.default_rng(spec.seed)
    rate_per_s = spec.load * spec.capacity_per_s
    if spec.trace:
        arrivals = spec.trace.rescaled(rate_per_s)
    else:
        arrivals = poisson(rate_per_s, spec.seconds, rng, spec.row_tokens, spec.rows)
    log, server = _serve(spec, arrivals, node, rng, progress)
    return _result(spec, arrivals, log, server)


def _serve(
    spec: LanesSpec,
    arrivals: Arrivals,
    node: Callable[[SimulatedHost], Node],
    rng: np.random.Generator,
    progress: Callable[[float], None] | None,
) -> tuple[ServerLog, SimulatedServer]:
    first = DeviceTruth.of(spec.cost, spec.in_lane, spread=spec.noise)
    later = [(at_s, DeviceTruth.of(whole, lane, spread=spec.noise)) for at_s, whole, lane in spec.changes]
    truth = ChangingTruth([(0.0, first), *later]) if later else first
    typical = bytes_of(CallSize.uniform(arrivals.rows, spec.row_tokens)) if spec.policy == "twoshift" else None
    events = EventQueue()
    nodes = [node(SimulatedHost(events, spec.host, typical)) for _ in range(spec.replicas)]
    front = SimulatedHost(events, spec.front, typical) if spec.replicas > 1 else None
    server = SimulatedServer(events, nodes, front, truth, first.luck(rng))
    return server.run(arrivals, spec.slo_s, spec.background_block, progress), server


def _result(spec: LanesSpec, arrivals: Arrivals, log: ServerLog, server: SimulatedServer) -> LanesResult:
    offered, horizon_s = len(arrivals.tokens), arrivals.horizon_s
    latencies_ms = np.asarray(log.latencies_s) * 1e3
    p50_ms, p99_ms = np.percentile(latencies_ms, (50, 99)).tolist() if len(latencies_ms) else (None, None)
    uses, device_s = list(server.uses()), spec.replicas * horizon_s
    live_s, background_s = sum(use.live_s for use in uses), sum(use.background_s for use in uses)
    return LanesResult(
        capacity_per_s=spec.capacity_per_s,
        offered_per_s=offered / horizon_s,
        goodput=log.in_slo / horizon_s,
        in_slo=log.in_slo / offered if offered else 1.0,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        refused=log.refused,
        dropped=log.dropped,
        background_per_s=sum(use.background_rows for use in uses) / horizon_s,
        busy_share=(live_s + background_s) / device_s,
        live_share=live_s / device_s,
        host_share=sum(node.host.busy_s for node in server.nodes) / device_s,
        front_share=0.0 if server.front is None else server.front.busy_s / horizon_s,
        latencies_ms=tuple(latencies_ms.tolist()),
    )
