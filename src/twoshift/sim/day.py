"""`twoshift sim day`: a fleet over a day, autoscaled, with a batch backlog, against two separate fleets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from twoshift.errors import InvalidInput, Malformed
from twoshift.policy.autoscale import (
    AutoscalePolicy,
    BatchBacklog,
    FleetScale,
    FleetState,
    ReplicaSettings,
    ReplicaState,
    WorkerSettings,
)
from twoshift.policy.reconcile import ReconcilePolicy, ReconcileSettings
from twoshift.policy.reconcile_values import Replica, ReplicaStage, VersionWanted, Wanted
from twoshift.sim.fleet import SimFleet
from twoshift.sim.lanes import LanesSpec, check_slo
from twoshift.sim.replica import PoissonReplica, ReplicaSource, ReplicaTick, TraceReplica
from twoshift.sim.traffic import Arrivals

__all__ = ["DayResult", "DaySpec", "DayTick", "FleetDay", "simulate_day"]

_DAY_S = 86400.0
_MOST_TICKS, _MOST_ROWS = 20_160, 3_000_000
_VERSION = "1"


@dataclass(frozen=True, slots=True)
class DaySpec:
    """A device, a day of traffic, a backlog and the prices."""

    lanes: LanesSpec
    peak_per_s: float
    trough: float = 0.2  # the quietest hour as a share of the peak
    batch_items: float = 0.0
    price_usd: float = 2.5  # an hour of a device
    spot_discount: float = 0.0  # of the dedicated batch workers
    start_s: float = 60.0  # until a new replica is ready
    max_devices: int = 10_000
    tick_s: float = 60.0
    trace: Arrivals | None = None
    copies: int = 1  # of the trace, each shifted a little: a larger fleet with the same bursts


@dataclass(frozen=True, slots=True)
class DayTick:
    """One tick of the day."""

    hour: float
    rate_per_s: float
    replicas: int
    workers: int
    p99_ms: float | None
    in_slo: float
    live_devices: float
    harvested_devices: float
    idle_devices: float
    batch_pending: float
    decision: str


@dataclass(frozen=True, slots=True)
class FleetDay:
    """A day of one fleet."""

    p50_ms: float | None
    p99_ms: float | None
    in_slo: float
    live_hours: float
    harvested_hours: float
    dedicated_hours: float
    idle_hours: float
    batch_done: float
    batch_finished_hour: float | None
    usd: float
    ticks: tuple[DayTick, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DayResult:
    """One fleet for both shifts, and two fleets for the same work."""

    together: FleetDay
    online_alone: FleetDay
    batch_alone_hours: float
    batch_alone_usd: float

    peak_sized_usd: float  # an online fleet that is not scaled: its peak, all day

    @property
    def separate_usd(self) -> float:
        """Two fleets, the online one autoscaled as ours is."""
        return self.online_alone.usd + self.batch_alone_usd

    @property
    def static_usd(self) -> float:
        """Two fleets, the online one sized for its peak."""
        return self.peak_sized_usd + self.batch_alone_usd

    @property
    def saved_share(self) -> float:
        """What one fleet saves against two autoscaled ones."""
        return 1.0 - self.together.usd / self.separate_usd


def simulate_day(spec: DaySpec, progress: Callable[[float], None] | None = None) -> DayResult:
    """Run the day twice: with the backlog on the live fleet, and with a fleet of its own for the batch."""
    check_slo(spec.lanes)
    source = _source(spec)

    def told(share: float) -> None:
        if progress:
            progress(share / 2)

    together = _Day(spec, source, spec.batch_items).run(told)
    alone = _Day(spec, source, 0.0).run(lambda share: told(1.0 + share))
    hours = together.batch_done / spec.lanes.capacity_per_s / 3600
    peak_hours = max(tick.replicas for tick in alone.ticks) * source.ticks * source.tick_s / 3600
    batch_usd = hours * spec.price_usd * (1 - spec.spot_discount)
    return DayResult(together, alone, hours, batch_usd, peak_hours * spec.price_usd)


def _source(spec: DaySpec) -> ReplicaSource:
    rng = np.random.default_rng(spec.lanes.seed)
    if spec.trace is None:
        return PoissonReplica(spec.lanes, _diurnal(spec, rng), spec.tick_s)
    if spec.trace.horizon_s > _MOST_TICKS * spec.tick_s:
        days = _MOST_TICKS * spec.tick_s / _DAY_S
        told = f"a trace of at most {days:.0f} days; this trace covers {spec.trace.horizon_s / _DAY_S:.0f} days"
        raise Malformed("trace", told)
    if spec.copies * len(spec.trace.times_s) > _MOST_ROWS:
        raise InvalidInput(
            "copies", spec.copies, f"at most {_MOST_ROWS // len(spec.trace.times_s):,} copies of this trace"
        )
    shifts = np.concatenate([[0.0], rng.uniform(0.0, 1.0, spec.copies - 1)])
    times = np.concatenate([spec.trace.times_s + shift for shift in shifts])
    order = np.argsort(times, kind="stable")
    tokens = np.tile(spec.trace.tokens, spec.copies)[order]
    return TraceReplica(spec.lanes, Arrivals(times[order], tokens, spec.trace.horizon_s), spec.tick_s)


def _diurnal(spec: DaySpec, rng: np.random.Generator) -> Sequence[float]:
    """Quiet at 04:00, busiest at 16:00, with a wandering error and a few bursts."""
    ticks = round(_DAY_S / spec.tick_s)
    hours = np.arange(ticks) * spec.tick_s / 3600
    shape = spec.trough + (1 - spec.trough) * (0.5 - 0.5 * np.cos((hours - 4) / 24 * 2 * np.pi))
    wander = np.zeros(ticks)
    for i in range(1, ticks):
        wander[i] = 0.97 * wander[i - 1] + rng.normal(0.0, 0.012)
    burst = np.ones(ticks)
    for at in rng.integers(0, ticks, 3):
        burst[at : at + max(1, round(600 / spec.tick_s))] = 1.3
    return (spec.peak_per_s * shape * np.exp(wander) * burst).tolist()


class _Day:
    """The fleet, tick by tick: observe, decide, act."""

    def __init__(self, spec: DaySpec, source: ReplicaSource, batch_items: float) -> None:
        self._spec, self._source = spec, source
        self._policy = AutoscalePolicy(
            ReplicaSettings(max_replicas=spec.max_devices), WorkerSettings(quota=spec.max_devices, start_s=spec.start_s)
        )
        self._pending = batch_items
        self._batch_items = batch_items
        one = self._policy.replicas.settings.target_load * spec.lanes.capacity_per_s
        first = max(1, math.ceil(min(source.rate_per_s(0) / one, spec.max_devices)))
        self._replica_fleet, self._worker_fleet = _fleet(spec.start_s, first), _fleet(spec.start_s, 0)
        self._ready = self._workers = 0  # of each, ready in this tick
        self._harvest_per_s = 0.0  # smoothed over about an hour
        self._ticks: list[DayTick] = []
        self._latencies: list[tuple[Sequence[float], float]] = []  # samples and the rows each stands for
        self._offered = self._in_slo = 0.0
        self._hours = dict.fromkeys(("live", "harvested", "idle", "dedicated", "starting"), 0.0)
        self._finished_s: float | None = None

    def run(self, progress: Callable[[float], None]) -> FleetDay:
        for tick in range(self._source.ticks):
            self._step(tick)
            progress((tick + 1) / self._source.ticks)
        return self._result()

    def _step(self, tick: int) -> None:
        now_s, tick_s = tick * self._source.tick_s, self._source.tick_s
        self._replica_fleet.advance(now_s)
        self._worker_fleet.advance(now_s)
        self._ready = self._replica_fleet.count(ReplicaStage.READY)
        self._workers = self._worker_fleet.count(ReplicaStage.READY)
        rate = self._source.rate_per_s(tick)
        seen = self._source.behaviour(tick, self._ready, self._pending > 0)
        self._count(seen, rate * tick_s, tick_s)
        self._do_batch(seen, now_s, tick_s)
        scale = self._policy.decide(self._state(seen, rate, now_s), now_s)
        self._ticks.append(self._tick(now_s, rate, seen, scale))
        self._act(scale, now_s)

    def _count(self, seen: ReplicaTick, rows: float, tick_s: float) -> None:
        hours = self._ready * tick_s / 3600
        busy = seen.live_share + seen.background_share
        self._hours["live"] += hours * seen.live_share
        self._hours["harvested"] += hours * seen.background_share
        self._hours["idle"] += hours * max(0.0, 1.0 - busy)
        self._offered += rows
        self._in_slo += rows * seen.in_slo
        if seen.latencies_ms:
            self._latencies.append((seen.latencies_ms, rows * (1 - seen.refused)))

    def _do_batch(self, seen: ReplicaTick, now_s: float, tick_s: float) -> None:
        if self._pending <= 0:
            return
        harvest = seen.background_per_s * self._ready
        weight = min(1.0, tick_s / 3600)
        self._harvest_per_s += (weight if now_s else 1.0) * (harvest - self._harvest_per_s)
        self._hours["dedicated"] += self._workers * tick_s / 3600
        done = (harvest + self._workers * self._spec.lanes.capacity_per_s) * tick_s
        if done >= self._pending:
            self._finished_s = now_s + tick_s * self._pending / done
        self._pending = max(0.0, self._pending - done)

    def _state(self, seen: ReplicaTick, rate: float, now_s: float) -> FleetState:
        capacity = self._spec.lanes.capacity_per_s
        horizon_s = self._source.ticks * self._source.tick_s
        replicas = ReplicaState(
            ready=self._ready,
            starting=self._replica_fleet.count(ReplicaStage.STARTING),
            live_rows_per_s=rate,
            refused_rows_per_s=rate * seen.refused,
            replica_rows_per_s=capacity,
            harvested_rows_per_s=seen.background_per_s * self._ready if self._pending else 0.0,
        )
        workers = BatchBacklog(
            pending_items=math.ceil(self._pending),
            worker_items_per_s=capacity,
            time_left_s=horizon_s - now_s - self._source.tick_s,
            harvested_items_per_s=self._harvest_per_s,
            workers=self._workers + self._worker_fleet.count(ReplicaStage.STARTING),
        )
        return FleetState(replicas, workers)

    def _act(self, scale: FleetScale, now_s: float) -> None:
        """Carry it out at the tick's end; what is ordered is paid from then on, and works after its start."""
        end_s = now_s + self._source.tick_s
        if scale.replicas.change > 0:
            self._hours["starting"] += scale.replicas.change * self._spec.start_s / 3600
        if scale.workers.change > 0:
            self._hours["dedicated"] += scale.workers.change * self._spec.start_s / 3600
        self._replica_fleet.settle(_wanted(scale.replicas.target, floor=1), end_s)
        self._worker_fleet.settle(_wanted(scale.workers.target, floor=0), end_s)

    def _tick(self, now_s: float, rate: float, seen: ReplicaTick, scale: FleetScale) -> DayTick:
        changes = [each.reason for each in (scale.replicas, scale.workers) if each.change]
        return DayTick(
            hour=now_s / 3600,
            rate_per_s=rate,
            replicas=self._ready,
            workers=self._workers,
            p99_ms=seen.p99_ms,
            in_slo=seen.in_slo,
            live_devices=self._ready * seen.live_share,
            harvested_devices=self._ready * seen.background_share,
            idle_devices=self._ready * max(0.0, 1 - seen.live_share - seen.background_share),
            batch_pending=self._pending,
            decision="; ".join(changes),
        )

    def _result(self) -> FleetDay:
        hours, spec = self._hours, self._spec
        online = hours["live"] + hours["harvested"] + hours["idle"] + hours["starting"]
        p50, p99 = _weighted_percentiles(self._latencies, (0.5, 0.99))
        return FleetDay(
            p50_ms=p50,
            p99_ms=p99,
            in_slo=self._in_slo / self._offered if self._offered else 1.0,
            live_hours=hours["live"],
            harvested_hours=hours["harvested"],
            dedicated_hours=hours["dedicated"],
            idle_hours=hours["idle"] + hours["starting"],
            batch_done=self._batch_items - self._pending,
            batch_finished_hour=None if self._finished_s is None else self._finished_s / 3600,
            usd=spec.price_usd * (online + hours["dedicated"] * (1 - spec.spot_discount)),
            ticks=tuple(self._ticks),
        )


def _fleet(start_s: float, ready: int) -> SimFleet:
    """So many that are ready; the curve is known, so no first replica has to measure it."""
    replicas = [Replica(number, _VERSION, ReplicaStage.READY, 0.0, 0.0) for number in range(ready)]
    return SimFleet(lambda _: start_s, replicas, policy=ReconcilePolicy(ReconcileSettings(first_alone=False)))


def _wanted(replicas: int, floor: int) -> Wanted:
    return Wanted((VersionWanted(_VERSION, replicas),), floor)


def _weighted_percentiles(
    samples: Sequence[tuple[Sequence[float], float]], quantiles: Sequence[float]
) -> list[float] | list[None]:
    """Percentiles over samples that stand for different numbers of rows."""
    if not samples:
        return [None] * len(quantiles)
    by_sample: dict[int, tuple[Sequence[float], float]] = {}
    for sample, rows in samples:  # the same load comes back many times: add its rows up
        by_sample[id(sample)] = (sample, by_sample.get(id(sample), (sample, 0.0))[1] + rows)
    values = np.concatenate([np.asarray(sample, float) for sample, _ in by_sample.values()])
    weights = np.concatenate([np.full(len(sample), rows / len(sample)) for sample, rows in by_sample.values()])
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return [float(values[order][min(len(values) - 1, np.searchsorted(reached, q))]) for q in quantiles]
