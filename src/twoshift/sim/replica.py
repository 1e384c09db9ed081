"""What one replica does in one tick of a day: the real lane policy, on made-up or recorded traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from twoshift.sim.lanes import LanesSpec, serve_arrivals
from twoshift.sim.traffic import Arrivals, poisson

__all__ = ["PoissonReplica", "ReplicaSource", "ReplicaTick", "TraceReplica"]

_MOST_LOAD = 2.0
_STEP = 0.025  # loads are simulated on this grid, once each
_ROWS, _CALLS = 3000, 5000  # a grid point is simulated over about so many live rows, and no more full calls


@dataclass(frozen=True, slots=True)
class ReplicaTick:
    """One replica over one tick, as rates and shares of its time."""

    latencies_ms: Sequence[float]  # of answered rows: a sample
    p99_ms: float | None
    in_slo: float  # share of offered rows
    refused: float  # share of offered rows that were refused or dropped
    background_per_s: float
    live_share: float
    background_share: float


class ReplicaSource(Protocol):
    """Where a replica's behaviour comes from."""

    ticks: int
    tick_s: float

    def rate_per_s(self, tick: int) -> float:
        """Live rows a second that the whole fleet is offered."""
        ...

    def behaviour(self, tick: int, replicas: int, background: bool) -> ReplicaTick:
        """What one of `replicas` does in that tick."""
        ...


class PoissonReplica:
    """Follows a curve of rates; a load is simulated the first time it is met."""

    def __init__(self, spec: LanesSpec, rates_per_s: Sequence[float], tick_s: float) -> None:
        self.ticks, self.tick_s = len(rates_per_s), tick_s
        self._spec = spec
        self._rates_per_s = rates_per_s
        self._known: dict[tuple[float, bool], ReplicaTick] = {}

    def rate_per_s(self, tick: int) -> float:
        return self._rates_per_s[tick]

    def behaviour(self, tick: int, replicas: int, background: bool) -> ReplicaTick:
        offered = self._rates_per_s[tick] / replicas / self._spec.capacity_per_s
        load = _on_grid(offered)
        key = (load, background)
        if key not in self._known:
            self._known[key] = self._simulate(load, background)
        known = self._known[key]
        if offered <= _MOST_LOAD:
            return known
        # Beyond that the device does no more: only the refused share grows.
        served = _MOST_LOAD / offered
        return replace(known, in_slo=known.in_slo * served, refused=1 - (1 - known.refused) * served)

    def _simulate(self, load: float, background: bool) -> ReplicaTick:
        rate_per_s = max(load, 1e-9) * self._spec.capacity_per_s
        call_s = self._spec.max_batch / self._spec.capacity_per_s
        horizon_s = max(20 * self._spec.slo_s, _ROWS / max(rate_per_s, self._spec.capacity_per_s / 4))
        # No more full calls than that, but some live rows: a load that is hardly there is still a load.
        horizon_s = max(min(horizon_s, _CALLS * call_s), min(30 / rate_per_s, 2 * _CALLS * call_s))
        horizon_s = min(horizon_s, 20 * _ROWS / rate_per_s)
        rng = np.random.default_rng([self._spec.seed, round(load * 1e9), background])
        return _run(
            replace(self._spec, background=background), poisson(rate_per_s, horizon_s, rng, self._spec.row_tokens)
        )


def _on_grid(load: float) -> float:
    """A load near this one; small ones to one digit, so that none is rounded away."""
    if load < 4 * _STEP:
        return float(f"{load:.1g}")
    return min(round(load / _STEP) * _STEP, _MOST_LOAD)


class TraceReplica:
    """Follows a trace, row by row; a replica gets every n-th row of its tick."""

    def __init__(self, spec: LanesSpec, trace: Arrivals, tick_s: float) -> None:
        self.ticks, self.tick_s = max(1, int(np.ceil(trace.horizon_s / tick_s))), tick_s
        self._spec = replace(spec, trace=trace)
        self._trace = trace
        self._edges = np.searchsorted(trace.times_s, np.arange(self.ticks + 1) * tick_s)

    def rate_per_s(self, tick: int) -> float:
        return float(self._edges[tick + 1] - self._edges[tick]) / self.tick_s

    def behaviour(self, tick: int, replicas: int, background: bool) -> ReplicaTick:
        rows = slice(self._edges[tick] + tick % replicas, self._edges[tick + 1], replicas)
        times_s = self._trace.times_s[rows] - tick * self.tick_s
        arrivals = Arrivals(times_s, self._trace.tokens[rows], self.tick_s)
        return _run(replace(self._spec, background=background), arrivals)


def _run(spec: LanesSpec, arrivals: Arrivals) -> ReplicaTick:
    log, server = serve_arrivals(spec, arrivals)
    (use,) = server.uses()
    offered = len(arrivals.times_s)
    latencies_ms = [1e3 * latency for latency in log.latencies_s]
    return ReplicaTick(
        latencies_ms=latencies_ms,
        p99_ms=float(np.percentile(latencies_ms, 99)) if latencies_ms else None,
        in_slo=log.in_slo / offered if offered else 1.0,
        refused=(log.refused + log.dropped) / offered if offered else 0.0,
        background_per_s=use.background_rows / arrivals.horizon_s,
        live_share=use.live_s / arrivals.horizon_s,
        background_share=use.background_s / arrivals.horizon_s,
    )
