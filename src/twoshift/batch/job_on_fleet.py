"""A job in the batch lanes of replicas that serve: when its rows may run, what live requests notice."""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from twoshift.batch.impact import LiveImpact, Percentiles
from twoshift.batch.job_seats import JobSeat, LaneReplica, LiveFleet, Used
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.settings import JobSettings
from twoshift.policy.deadline import Verdict
from twoshift.policy.hours import Hours
from twoshift.triggers.zones import minute_of_week

__all__ = ["JobOnFleet"]

_PROBE_EVERY_S, _PROBE_S = 10.0, 0.5  # how often, and for how long, the lane is empty so that live can be seen alone
_SETTLE_S = 0.1  # after a change, before what live requests see counts
_PROBED_ENOUGH = 500  # live requests seen alone: more would cost the job more than they say
_LOAD_S = 5.0  # over which live load is measured
_GIVE_BACK = 0.8  # of the load at which a job gives way: below it, it goes on
_MOST_LATENCIES = 20_000
_LISTEN_S = 0.25  # between two looks at what live requests took
_LATE_S = 0.75  # after which what other processes of the server have answered is known here
_PHASES = 32  # that may have been within that time, with a look at each


@dataclass(slots=True)
class _Phase:
    """A stretch in which the lane was either held or not."""

    began_s: float
    held: bool


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


@dataclass(slots=True)
class _Part:
    """The job at one replica."""

    place: JobSeat
    load: _Load = field(default_factory=_Load)


class JobOnFleet:
    """One job over the replicas of a model; `tick` is called a few times a second, by one thread."""

    def __init__(
        self,
        settings: JobSettings,
        fleet: LiveFleet,
        clock: Callable[[], float] = time.monotonic,
        minute: Callable[[], int] | None = None,  # of the week; None: as the clocks of its time zone show it
        withheld: Callable[[], str] = lambda: "",  # why its owner may have no device now; empty where that may
    ) -> None:
        self._fleet, self._weight = fleet, settings.weight
        self.model = fleet.model or settings.model  # by the name that clients have for it
        self._parts: dict[LaneReplica, _Part] = {}
        self._urgency = (math.inf, False)  # a deadline, and whether a share is owed
        self._closed = False
        self._gone = Used()  # of replicas that are no more
        self._lock = threading.RLock()  # guards these
        self._clock, self._withheld = clock, withheld
        self._minute = minute or partial(minute_of_week, settings.tz)
        self._hours = None if settings.hours is None else Hours.parse(settings.hours)
        self._zone = settings.tz
        self._max_load = settings.max_live_load
        self._why = ""  # it may not run now
        self._why = self._held_by(clock())
        self._phase = _Phase(clock(), bool(self._why))
        self._phases: deque[_Phase] = deque([self._phase], _PHASES)  # the last ones, this one included
        self._listened_s = clock()
        self._counted: set[tuple[float, float]] = set()  # what had ended by then, lately
        self._probe_due_s = clock() + _PROBE_EVERY_S
        self._beside: list[float] = []
        self._alone: list[float] = []

    def tick(self) -> None:
        """Hold the rows back or let them go on, by the clock, the live load and the probe."""
        now_s = self._clock()
        self.places()
        self._listen(now_s)
        self._why = self._held_by(now_s)
        self._set_held(bool(self._why) or self._probes(now_s), now_s)

    def follow(self, now: JobSnapshot) -> None:
        """Put the job's rows in the order of its slack; where there is none left, they may be owed a share."""
        laxity_s = now.outlook.laxity_s
        deadline_s = math.inf if laxity_s is None else self._clock() + laxity_s
        with self._lock:
            self._urgency = (deadline_s, now.outlook.verdict in (Verdict.AT_RISK, Verdict.WILL_MISS))
            for place in self.places().values():
                place.follow(*self._urgency)

    def close(self) -> None:
        """It leaves its places, and takes no others; what it has had of them stays known."""
        with self._lock:
            self._closed = True
            for part in self._parts.values():
                part.place.leave()

    def places(self) -> dict[LaneReplica, JobSeat]:
        """The job at each replica that there is now."""
        with self._lock:
            if self._closed:
                return {}
            there = self._fleet.replicas()
            for replica in [each for each in self._parts if each not in there]:
                self._gone = self._gone.plus(self._parts.pop(replica).place.used())
            for replica in there:
                if replica not in self._parts:
                    self._parts[replica] = _Part(self._joined(replica))
            return {replica: part.place for replica, part in self._parts.items()}

    def why_dead(self) -> str:
        """Why its model cannot go on before the server is started again; empty where it can."""
        return self._fleet.why_dead()

    @property
    def why_held(self) -> str:
        """For people; empty where it runs."""
        return self._why

    def used(self) -> Used:
        """What it has had of the replicas."""
        with self._lock:
            used = self._gone
            for part in self._parts.values():
                used = used.plus(part.place.used())
            return used

    def impact(self) -> LiveImpact:
        """What live requests took with and without it."""
        return LiveImpact(Percentiles.of(self._beside), Percentiles.of(self._alone), self._fleet.slo_s())

    def _held_by(self, now_s: float) -> str:
        """What keeps it from running now; empty where nothing does."""
        load = 0.0 if self._max_load is None else self._live_load(now_s)
        if why := self._withheld():
            return why
        if self._hours is not None and not self._hours.contains(self._minute()):
            where = "" if self._zone is None else f" ({self._zone})"
            return f"the job may run only during its hours, {self._hours}{where}"
        if self._max_load is None or load <= self._max_load * (_GIVE_BACK if self._why else 1.0):
            return ""
        limits = f"pauses above {self._max_load:.0%} and continues below {self._max_load * _GIVE_BACK:.0%}"
        return f"live requests use {load:.0%} of a device; this job {limits}"

    def _live_load(self, now_s: float) -> float:
        """The largest share that live rows have of a device."""
        with self._lock:
            parts = list(self._parts.items())
        return max((part.load.share(now_s, replica.live_device_s()) for replica, part in parts), default=0.0)

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
        ended = self._fleet.latencies()
        return bool(ended) and ended[-1][0] > now_s - _PROBE_EVERY_S

    def _set_held(self, held: bool, now_s: float) -> None:
        with self._lock:
            if held is self._phase.held or self._closed:
                return
            self._phase = _Phase(now_s, held)
            self._phases.append(self._phase)
            for part in self._parts.values():
                (part.place.hold if held else part.place.release)()

    def _joined(self, replica: LaneReplica) -> JobSeat:
        place = replica.place(self._weight)
        place.follow(*self._urgency)
        if self._phase.held:
            place.hold()
        return place

    def _listen(self, now_s: float) -> None:
        """Count what ended since the last look, or is heard of only now, and lay wholly within a phase."""
        if now_s < self._listened_s + _LISTEN_S:
            return
        ended = self._fleet.latencies()
        lately = ended[bisect.bisect_right(ended, (self._listened_s - _LATE_S, math.inf)) :]
        for each in lately:
            if each not in self._counted:
                self._count(*each)
        self._counted, self._listened_s = {*lately}, now_s

    def _count(self, ended_s: float, seconds: float) -> None:
        phase = next((each for each in reversed(self._phases) if each.began_s <= ended_s), None)
        if phase is None or ended_s - seconds < phase.began_s + _SETTLE_S:
            return
        counted = self._alone if phase.held else self._beside
        if len(counted) < _MOST_LATENCIES:
            counted.append(seconds)
