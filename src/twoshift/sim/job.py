"""A job on preemptible workers with stragglers, run by the real shard and deadline policies on a virtual clock."""

from __future__ import annotations

import copy
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from twoshift.errors import InvalidInput
from twoshift.policy.deadline import DeadlineLimits, DeadlinePolicy, Outlook
from twoshift.policy.leases import Committed, Duplicate, Finished, Lease, ShardLimits, Wait
from twoshift.policy.shards import ShardPolicy

__all__ = ["Forecast", "JobOutcome", "JobRun", "JobSimulation", "JobSpec", "JobStudy", "Spread"]

_SHARD_S = 60.0
_SHARDS_A_WORKER = 20  # fewer, and the last round decides the finish
_SHARD_EVENTS, _MOST_RUNS, _MOST_SHARDS = 800_000, 30, 5_000_000
_FORECAST_SHARES = (0.1, 0.5)
_TIMELINE_POINTS = 200
_MOST_WORKERS = 100_000
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job, its fleet, and what goes wrong on it."""

    items: float
    workers: int  # where it scales: at most
    rate_items_per_s: float  # of one healthy worker
    window_s: float
    shard_s: float | None = None  # None: a minute, or less so that each worker gets some twenty
    preemptions_per_hour: float = 0.1  # of each worker
    restart_s: float = 120.0  # from a preemption until a replacement works
    straggler_share: float = 0.05  # of the time, a worker is slow
    straggler_factor: float = 3.0  # so many times slower
    straggler_spell_s: float = 600.0  # mean time that a slow worker stays slow
    noise: float = 0.1  # log standard deviation of a shard's time
    price_usd_per_hour: float = 2.50  # of a worker on demand
    spot_discount: float = 0.6
    speculate_factor: float = 1.5
    scales: bool = False  # it begins with one worker, and has as many as its window needs
    runs: int | None = None  # None: as many as take some seconds
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("items", "rate_items_per_s", "window_s", "straggler_spell_s"):
            _require(field, getattr(self, field), 0, math.inf, "a finite number above 0", above=True)
        for field in ("preemptions_per_hour", "restart_s", "noise", "price_usd_per_hour"):
            _require(field, getattr(self, field), 0, math.inf, "a finite number, 0 or more")
        for field in ("straggler_share", "spot_discount"):
            _require(field, getattr(self, field), 0, 1, "a number of at least 0 and less than 1")
        for field in ("straggler_factor", "speculate_factor"):
            _require(field, getattr(self, field), 1, math.inf, "a finite number of 1 or more")
        if not 1 <= self.workers <= _MOST_WORKERS:
            raise InvalidInput("workers", self.workers, f"a number from 1 to {_MOST_WORKERS:,}")
        if self.preemptions_per_hour > _HOUR_S:
            raise InvalidInput(
                "preemptions_per_hour",
                self.preemptions_per_hour,
                "a number of at most 3600 (one preemption per second)",
            )
        if self.runs is not None and self.runs < 1:
            raise InvalidInput("runs", self.runs, "1 or more")
        if self.shard_s is not None:
            _require("shard_s", self.shard_s, 0, math.inf, "a finite number above 0", above=True)
        if self.shards > _MOST_SHARDS:
            if self.shard_s is not None:
                raise InvalidInput(
                    "shard_s",
                    self.shard_s,
                    f"a longer time; this value makes more than {_MOST_SHARDS:,} shards",
                )
            most = _MOST_SHARDS * self.items / self.shards
            raise InvalidInput(
                "items", f"{self.items:g}", f"a number of at most {most:.3g}, or a longer --shard-seconds"
            )

    @property
    def ideal_s(self) -> float:
        """The finish with nothing going wrong."""
        return self.items / (self.workers * self.rate_items_per_s)

    @property
    def shards(self) -> int:
        aim_s = self.shard_s or min(_SHARD_S, self.ideal_s / _SHARDS_A_WORKER)
        return max(1, math.ceil(self.items / self.rate_items_per_s / aim_s - 1e-9))

    @property
    def healthy_shard_s(self) -> float:
        """The mean time of a shard on a worker that is not slow."""
        return self.items / self.shards / self.rate_items_per_s

    @property
    def planned_runs(self) -> int:
        return self.runs or min(_MOST_RUNS, max(1, _SHARD_EVENTS // (self.shards + self.workers)))

    @property
    def spot_usd_per_hour(self) -> float:
        return self.price_usd_per_hour * (1 - self.spot_discount)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the deadline policy said at some share of the work, beside what came true."""

    share: float
    at_s: float
    outlook: Outlook
    finish_s: float


@dataclass(frozen=True, slots=True)
class JobRun:
    """One simulated job."""

    seed: int
    finished: bool  # False: given up, and finish_s is when
    finish_s: float
    preemptions: int
    retries: int
    speculated: int
    useful_s: float
    lost_s: float  # worker-seconds of work that preemptions destroyed
    duplicated_s: float  # worker-seconds of the copies that came second
    paid_s: float  # worker-seconds billed: all but the restarts
    usd: float
    forecasts: tuple[Forecast, ...]  # of the runs with speculation
    timeline: tuple[tuple[float, float], ...]  # (seconds, share of the shards done)
    scaling: tuple[tuple[float, int], ...] = ()  # (seconds, workers from then on), where it scales


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in a line; infinite where too many runs did not end."""

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        ordered = sorted(values)
        if ordered[-1] < math.inf:
            p10, p50, p90, p99 = (float(np.quantile(ordered, q)) for q in (0.1, 0.5, 0.9, 0.99))
        else:  # nothing can be interpolated towards infinity
            p10, p50, p90, p99 = (ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.1, 0.5, 0.9, 0.99))
        return cls(sum(ordered) / len(ordered), p10, p50, p90, p99, ordered[-1])


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The runs with speculation, or those without; means over the runs where not said otherwise."""

    speculate: bool
    runs: tuple[JobRun, ...]
    finished: int  # of the runs; the others were given up
    finish_s: Spread
    chance: float  # share of the runs that made the window
    lost_s: float
    lost_share: float  # of the worker-seconds paid
    duplicated_s: float
    duplicated_share: float
    retries: float
    speculated: float
    preemptions: float
    usd: float

    @classmethod
    def of(cls, runs: Sequence[JobRun], window_s: float, *, speculate: bool) -> JobOutcome:
        def mean(pick: Callable[[JobRun], float]) -> float:
            return sum(pick(run) for run in runs) / len(runs)

        paid_s = mean(lambda run: run.paid_s)
        lost_s, duplicated_s = mean(lambda run: run.lost_s), mean(lambda run: run.duplicated_s)
        return cls(
            speculate=speculate,
            runs=tuple(runs),
            finished=sum(run.finished for run in runs),
            finish_s=Spread.of([run.finish_s if run.finished else math.inf for run in runs]),
            chance=mean(lambda run: run.finished and run.finish_s <= window_s),
            lost_s=lost_s,
            lost_share=lost_s / paid_s if paid_s else 0.0,
            duplicated_s=duplicated_s,
            duplicated_share=duplicated_s / paid_s if paid_s else 0.0,
            retries=mean(lambda run: run.retries),
            speculated=mean(lambda run: run.speculated),
            preemptions=mean(lambda run: run.preemptions),
            usd=mean(lambda run: run.usd),
        )


@dataclass(frozen=True, slots=True)
class JobStudy:
    """A job simulated with and without speculation, on the same misfortunes."""

    spec: JobSpec
    shards: int
    shard_s: float  # on a healthy worker
    ideal_s: float
    with_speculation: JobOutcome
    without_speculation: JobOutcome


class JobSimulation:
    """One run: a heap of (time, order, worker, lease); no lease: the worker is up; no worker: look again."""

    def __init__(self, spec: JobSpec, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._total, self._shard_items = spec.shards, spec.items / spec.shards
        # preemptions are noticed at once here, so no lease has to expire
        limits = ShardLimits(lease_s=math.inf, speculate=False, speculate_factor=spec.speculate_factor)
        self._shards = ShardPolicy(self._total, limits)
        slowest = DeadlineLimits(slowest_factor=2 * spec.speculate_factor)
        self._deadline = DeadlinePolicy(spec.window_s, spec.rate_items_per_s, slowest)
        self._luck = _Luck(spec, seed)
        self._events: list[tuple[float, int, int, Lease | None]] = []
        self._order = itertools.count()
        self._idle: deque[int] = deque()  # the longest idle first
        self._look_s = math.inf  # when the next look for the idle is due
        self._cancelled: set[int] = set()  # lease ids whose end is still among the events
        self._attempts_left = 10 * self._total + 100 * spec.workers
        self._now_s = 0.0
        self._done = self._preemptions = 0
        self._down_s = 0.0
        self._outlooks: list[tuple[float, float, Outlook]] = []
        self._timeline: list[tuple[float, float]] = [(0.0, 0.0)]

    def run_both(self, progress: Callable[[int], None]) -> tuple[JobRun, JobRun]:
        """With and without speculation: one and the same run until a worker is first left without a shard."""
        self._begin()
        self._run(progress, until_idle=True)
        # leases are frozen, so both may hold the same ones: copying them would take longer than the rest
        shared = {id(event[3]): event[3] for event in self._events}
        other = copy.deepcopy(self, shared)
        self._shards.set_speculation(True)
        self._offer_idle(self._now_s)
        self._run(progress)
        other._run(lambda done: None)
        return self._result(self._outlooks), other._result(())

    def _begin(self) -> None:
        for worker in range(self._spec.workers):
            self._take(worker, 0.0)

    def _run(self, progress: Callable[[int], None], *, until_idle: bool = False) -> None:
        """Until every shard is committed, or it is plain that this will never be."""
        events, give_up_s = self._events, 20 * max(self._spec.window_s, self._spec.ideal_s)
        while self._done < self._total and self._now_s < give_up_s and self._attempts_left:
            if until_idle and self._idle:
                return
            self._now_s, _, worker, lease = heapq.heappop(events)
            if lease is not None:
                self._attempts_left -= 1
                self._ended(lease, self._now_s, progress)
            elif worker >= 0:
                self._luck.start(worker, self._now_s)
                self._take(worker, self._now_s)
            elif self._now_s == self._look_s:  # an earlier look replaces a later one, which stays in the heap
                self._look_s = math.inf
                self._offer_idle(self._now_s)

    def _take(self, worker: int, now_s: float) -> bool:
        """Asks for a shard; False when the worker is left without."""
        if self._luck.dies_s[worker] <= now_s:  # preempted while it was idle
            self._restart(worker, self._luck.dies_s[worker], now_s)
            return True
        answer = self._shards.lease(worker, now_s)
        match answer:
            case Lease():
                end_s = min(now_s + self._luck.shard_s(worker, now_s), self._luck.dies_s[worker])
                heapq.heappush(self._events, (end_s, next(self._order), worker, answer))
                return True
            case Wait(until_s):
                self._idle.append(worker)
                if until_s is not None and until_s < self._look_s:
                    self._look_s = until_s
                    heapq.heappush(self._events, (until_s, next(self._order), -1, None))
            case Finished():
                pass
        return False

    def _offer_idle(self, now_s: float) -> None:
        # one refusal speaks for all: they are alike, and asking each would cost workers squared
        while self._idle and self._take(self._idle.popleft(), now_s):
            pass

    def _ended(self, lease: Lease, now_s: float, progress: Callable[[int], None]) -> None:
        worker = int(lease.worker)
        if lease.id in self._cancelled:
            self._cancelled.remove(lease.id)
        elif now_s >= self._luck.dies_s[worker]:
            self._shards.worker_left(worker, now_s)
            self._deadline.lost(now_s - lease.started_s + self._spec.restart_s, now_s)
            self._restart(worker, now_s, now_s)
            self._offer_idle(now_s)
        else:
            self._complete(lease, now_s)
            self._note(now_s, progress)
            self._take(worker, now_s)

    def _complete(self, lease: Lease, now_s: float) -> None:
        match self._shards.completed(lease, now_s):
            case Committed(_, losers):
                self._done += 1
                # nobody asks it any more after the last
                if self._spec.scales or len(self._outlooks) < len(_FORECAST_SHARES):
                    self._deadline.observed(self._shard_items, now_s - lease.started_s, now_s)
                for loser in losers:
                    self._cancelled.add(loser.id)
                    self._take(int(loser.worker), now_s)
            case Duplicate():
                raise AssertionError("a cancelled copy of a shard kept running")

    def _restart(self, worker: int, died_s: float, now_s: float) -> None:
        up_s = max(died_s + self._spec.restart_s, now_s)
        self._preemptions += 1
        self._down_s += up_s - died_s
        self._come_up(worker, up_s)

    def _come_up(self, worker: int, up_s: float) -> None:
        heapq.heappush(self._events, (up_s, next(self._order), worker, None))

    def _note(self, now_s: float, progress: Callable[[int], None]) -> None:
        done, total = self._done, self._total
        if done * _TIMELINE_POINTS % total < _TIMELINE_POINTS:
            self._timeline.append((now_s, done / total))
            progress(done)
        asked = len(self._outlooks)
        if asked < len(_FORECAST_SHARES) and done >= _FORECAST_SHARES[asked] * total:
            left = self._spec.items * (1 - done / total)
            outlook = self._deadline.outlook(left, self._spec.workers, now_s)
            self._outlooks.append((_FORECAST_SHARES[asked], now_s, outlook))

    def _result(self, outlooks: Sequence[tuple[float, float, Outlook]]) -> JobRun:
        spec, counts, now_s = self._spec, self._shards.counts(), self._now_s
        paid_s = self._paid_s()
        return JobRun(
            seed=self._seed,
            finished=counts.committed == spec.shards,
            finish_s=now_s,
            preemptions=self._preemptions,
            retries=counts.retries,
            speculated=counts.speculated,
            useful_s=counts.useful_s,
            lost_s=counts.lost_s,
            duplicated_s=counts.duplicated_s,
            paid_s=paid_s,
            usd=paid_s / _HOUR_S * spec.spot_usd_per_hour,
            forecasts=tuple(Forecast(*said, finish_s=now_s) for said in outlooks),
            timeline=tuple(self._timeline),
        )

    def _paid_s(self) -> float:
        now_s = self._now_s
        still_down_s = sum(t - now_s for t, _, worker, lease in self._events if lease is None and worker >= 0)
        return self._spec.workers * now_s - self._down_s + still_down_s


class _Luck:
    """Every draw of a run: when workers die, when they are slow, how long a shard takes."""

    def __init__(self, spec: JobSpec, seed: int) -> None:
        self._spec = spec
        self._death_rate = spec.preemptions_per_hour / _HOUR_S
        self._rare = random.Random(seed)  # noqa: S311  (a simulation needs no secrets)
        self._often = np.random.default_rng(seed)
        self._noises: list[float] = []  # drawn by the thousand: several times faster than one by one
        self._healthy_s, self._slow_s = spec.healthy_shard_s, spec.healthy_shard_s * spec.straggler_factor
        self._slow_spell_s = spec.straggler_spell_s
        share = spec.straggler_share
        self._healthy_spell_s = spec.straggler_spell_s * (1 - share) / share if share else math.inf
        self.dies_s = [math.inf] * spec.workers  # when the worker is preempted next
        self._turns_s = [math.inf] * spec.workers  # when it turns slow, or healthy again
        self._slow = [False] * spec.workers
        for worker in range(spec.workers):
            self.start(worker, 0.0)

    def start(self, worker: int, now_s: float) -> None:
        """A fresh machine."""
        if self._death_rate:
            self.dies_s[worker] = now_s + self._rare.expovariate(self._death_rate)
        if self._spec.straggler_share:
            self._slow[worker] = self._rare.random() < self._spec.straggler_share
            self._turns_s[worker] = now_s + self._spell_s(worker)

    def shard_s(self, worker: int, now_s: float) -> float:
        """How long a shard begun now takes: a turn on the way changes only the next one."""
        while self._turns_s[worker] <= now_s:
            self._slow[worker] = not self._slow[worker]
            self._turns_s[worker] += self._spell_s(worker)
        if not self._noises:
            noise = self._spec.noise
            self._noises = self._often.lognormal(-(noise**2) / 2, noise, 4096).tolist()
        return (self._slow_s if self._slow[worker] else self._healthy_s) * self._noises.pop()

    def _spell_s(self, worker: int) -> float:
        mean_s = self._slow_spell_s if self._slow[worker] else self._healthy_spell_s
        return self._rare.expovariate(1.0) * mean_s  # not by the rate: that of an endless spell is 0


def _require(field: str, value: float, least: float, most: float, accepted: str, *, above: bool = False) -> None:
    if not least <= value < most or (above and value == least):
        raise InvalidInput(field, value, accepted)
