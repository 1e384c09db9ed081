"""A job's place in the lanes of replicas that serve: whose rows, when they may run, what live requests notice."""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twoshift.batch.impact import LiveImpact, Percentiles
from twoshift.batch.progress import Snapshot
from twoshift.batch.settings import JobSettings
from twoshift.engine import Engine
from twoshift.engine.waiting import BlockOwner
from twoshift.policy.deadline import Verdict
from twoshift.policy.hours import Hours
from twoshift.types import Lane

__all__ = ["JobLane", "Latencies", "Replica"]

_PROBE_EVERY_S, _PROBE_S = 10.0, 0.5  # how often, and for how long, the lane is empty so that live can be seen alone
_SETTLE_S = 0.1  # after a change, before what live requests see counts
_PROBED_ENOUGH = 500  # live requests seen alone: more would cost the job more than they say
_LOAD_S = 5.0  # over which live load is measured
_GIVE_BACK = 0.8  # of the load at which a job gives way: below it, it goes on
_MOST_LATENCIES = 20_000
_keys = itertools.count(1)  # of this process

Latencies = Callable[[], Sequence[tuple[float, float]]]  # of live requests: when each ended, and its seconds; in order


@dataclass(frozen=True, slots=True)
class Replica:
    """A model that serves."""

    engine: Engine
    latencies: Latencies


@dataclass(slots=True)
class _Phase:
    """A stretch in which the lane was either held or not."""

    began_s: float
    held: bool
    seen_s: float  # latencies that ended up to here are counted


@dataclass(slots=True)
class _Load:
    """How much of a device live rows have had lately."""

    points: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])  # when, device seconds

    def share(self, now_s: float, device_s: float) -> float:
        self.points.append((now_s, device_s))
        while len(self.points) > 2 and self.points[1][0] <= now_s - _LOAD_S:
            self.points.popleft()
        took_s = now_s - self.points[0][0]
        return (device_s - self.points[0][1]) / took_s if took_s > 0 else 0.0


class JobLane:
    """One job over some replicas; `tick` is called a few times a second, by one thread."""

    def __init__(
        self,
        settings: JobSettings,
        replicas: Sequence[Replica],
        clock: Callable[[], float] = time.monotonic,
        minute: Callable[[], int] = lambda: 60 * time.localtime().tm_hour + time.localtime().tm_min,
    ) -> None:
        key = next(_keys)
        self.replicas = tuple(replicas)
        self.owners = tuple(BlockOwner(key, settings.weight) for _ in replicas)
        self._clock, self._minute = clock, minute
        self._hours = None if settings.hours is None else Hours.parse(settings.hours)
        self._max_load = settings.max_live_load
        self._loads = tuple(_Load() for _ in replicas)
        self._phase = _Phase(clock(), False, clock())
        self._why = ""  # it may not run now
        self._probe_due_s = clock() + _PROBE_EVERY_S
        self._beside: list[float] = []
        self._alone: list[float] = []

    def tick(self) -> None:
        """Hold the rows back or let them go on, by the clock, the live load and the probe."""
        now_s = self._clock()
        self._listen(now_s)
        self._why = self._held_by(now_s)
        self._set_held(bool(self._why) or self._probes(now_s), now_s)

    def follow(self, now: Snapshot) -> None:
        """Put the job's rows in the order of its slack; where there is none left, they may be owed a share."""
        laxity_s = now.outlook.laxity_s
        for owner in self.owners:
            owner.deadline_s = math.inf if laxity_s is None else self._clock() + laxity_s
            owner.owed = now.outlook.verdict in (Verdict.AT_RISK, Verdict.WILL_MISS)

    def close(self) -> None:
        """Nothing of it is held back any more."""
        self._set_held(False, self._clock())

    @property
    def why_held(self) -> str:
        """For people; empty where it runs."""
        return self._why

    @property
    def device_s(self) -> float:
        """That it has had of the replicas."""
        return sum(owner.use.device_s for owner in self.owners)

    @property
    def riding_s(self) -> float:
        """Of those: in calls that live rows were in."""
        return sum(owner.riding_s for owner in self.owners)

    def impact(self) -> LiveImpact:
        """What live requests took with and without it."""
        return LiveImpact(Percentiles.of(self._beside), Percentiles.of(self._alone))

    def _held_by(self, now_s: float) -> str:
        """What keeps it from running now; empty where nothing does."""
        load = 0.0 if self._max_load is None else self._live_load(now_s)
        if self._hours is not None and not self._hours.contains(self._minute()):
            return f"outside its hours, {self._hours}"
        if self._max_load is None or load <= self._max_load * (_GIVE_BACK if self._why else 1.0):
            return ""
        return f"live rows have {load:.0%} of a device, and it gives way above {self._max_load:.0%}"

    def _live_load(self, now_s: float) -> float:
        """The largest share that live rows have of a device."""
        return max(
            load.share(now_s, replica.engine.stats().lanes[Lane.ONLINE].device_s)
            for load, replica in zip(self._loads, self.replicas, strict=True)
        )

    def _probes(self, now_s: float) -> bool:
        """Whether the lane is to be empty now so that live requests are seen alone."""
        if self._why or len(self._alone) >= _PROBED_ENOUGH:
            return False
        if self._phase.held:
            return now_s < self._phase.began_s + _PROBE_S
        if now_s < self._probe_due_s or not self._has_live(now_s):
            return False
        self._probe_due_s = now_s + _PROBE_EVERY_S
        return True

    def _has_live(self, now_s: float) -> bool:
        ended = [replica.latencies() for replica in self.replicas]
        return any(each and each[-1][0] > now_s - _PROBE_EVERY_S for each in ended)

    def _set_held(self, held: bool, now_s: float) -> None:
        if held is self._phase.held:
            return
        for replica, owner in zip(self.replicas, self.owners, strict=True):
            (replica.engine.hold if held else replica.engine.release)(owner)
        self._phase = _Phase(now_s, held, now_s)

    def _listen(self, now_s: float) -> None:
        """Count what ended since the last look and lay wholly within this phase."""
        counted = self._alone if self._phase.held else self._beside
        for replica in self.replicas:
            ended = replica.latencies()
            first = bisect.bisect_right(ended, (self._phase.seen_s, math.inf))
            for ended_s, seconds in itertools.islice(ended, first, None):
                if ended_s - seconds >= self._phase.began_s + _SETTLE_S and len(counted) < _MOST_LATENCIES:
                    counted.append(seconds)
        self._phase.seen_s = now_s
