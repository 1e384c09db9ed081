"""Schedules on a server: they fire by the clock, or by a marker that appears."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from threading import Event

import msgspec

from twoshift.closable_thread import ClosableThread
from twoshift.errors import Broken, InvalidInput, NotFound, TryLater, TwoshiftError
from twoshift.policy.cron import Cron
from twoshift.policy.due import next_due_s
from twoshift.policy.triggers import Fire, trigger
from twoshift.trigger_ports import ScheduledRun, ScheduleRecord, ScheduleStore
from twoshift.triggers.capped_threads import CappedThreads
from twoshift.triggers.spec import ScheduleSpec, run_of
from twoshift.triggers.submitting import JobSubmitter, Submitter, Tell
from twoshift.triggers.zones import offset_of
from twoshift.types import RunState

__all__ = ["Scheduler"]

_logger = logging.getLogger("twoshift.triggers")
_TURN_S = 1.0
_HANDS, _OF_ONE = 8, 6  # threads; of one owner
_MOST_SCHEDULES = 1000  # of an owner
_CLOSE_S = 2.0


class Scheduler:
    """Any thread may call it. A run is decided on in the store before it is submitted, for one time once."""

    def __init__(
        self,
        store: ScheduleStore,
        jobs: JobSubmitter,
        # What is another one whenever the marker there is; raises InvalidInput where the owner may not look
        marker_at: Callable[[str, str], str | None],
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._known, self._jobs, self._marker_at = store, jobs, marker_at
        self._clock, self._submitter = clock, Submitter(store, jobs, tell)
        self._markers, self._runs = CappedThreads(_HANDS, "twoshift-marker"), CappedThreads(_HANDS, "twoshift-due")
        self._looked_s: dict[str, float] = {}  # when each marker was last looked for
        self._quiet: dict[str, tuple[float, int]] = {}  # from when to when nothing is due
        self._thread = ClosableThread(self._keep, "twoshift-schedules", _CLOSE_S)

    @property
    def settled(self) -> Mapping[RunState, int]:
        """Runs since the start."""
        return self._submitter.settled

    def start(self) -> None:
        """Fire from now on."""
        self._thread.start()

    def close(self) -> None:
        """Nothing fires any more."""
        self._thread.close()

    # What is asked for

    def add(self, spec: ScheduleSpec, owner: str = "") -> ScheduleRecord:
        """A new one, or the very same that is there; raises InvalidInput, NotFound."""
        spec.check()
        if spec.after is not None:
            with contextlib.suppress(TryLater, Broken):  # it is looked for again and again
                self._marker_at(spec.after, owner)
        now_s = self._clock()
        example = run_of("example", "", now_s)
        self._jobs.check(spec.settings(example), owner)
        found = self._store.all(owner)
        plain = msgspec.to_builtins(spec)
        for each in found:
            if each.name == spec.name and each.spec == plain:
                return each
            if each.name != spec.name and each.spec["job"]["output"].rstrip("/") == spec.job["output"].rstrip("/"):
                raise InvalidInput(
                    "output", spec.job["output"], f"another output folder: the schedule {each.name} uses this folder"
                )
        if len(found) >= _MOST_SCHEDULES:
            accepted = (
                f"at most {_MOST_SCHEDULES:,} schedules per tenant; `twoshift schedule remove` deletes a schedule"
            )
            raise InvalidInput("name", spec.name, accepted)
        made = ScheduleRecord(f"sch-{uuid.uuid4().hex[:12]}", owner, spec.name, plain, now_s, now_s)
        if not self._store.add(made):
            raise InvalidInput(
                "name",
                spec.name,
                "another name: a schedule with this name exists; `twoshift schedule remove` deletes it",
            )
        return made

    def list(self, owner: str | None = None) -> list[ScheduleRecord]:
        """Those of an owner or of all, by name."""
        return self._store.all(owner)

    def get(self, name: str, owner: str | None = None) -> ScheduleRecord:
        """By its name or its id; raises NotFound."""
        for each in self._store.all(owner):
            if name in (each.name, each.id):
                return each
        raise NotFound("schedule", name, "the name of an existing schedule")

    def next_unix_s(self, schedule: ScheduleRecord) -> float | None:
        """When it is due; None where nobody knows."""
        spec = _spec(schedule)
        if spec.cron is None or schedule.is_paused:
            return None
        with contextlib.suppress(InvalidInput):  # a time zone that this machine does not know any more
            return next_due_s(Cron.parse(spec.cron), min(schedule.since_unix_s, self._clock()), offset_of(spec.tz))
        return None

    def pause(self, name: str, owner: str | None = None) -> ScheduleRecord:
        """Fire no more until told; raises NotFound."""
        self._store.change(self.get(name, owner).id, is_paused=True)
        return self.get(name, owner)

    def resume(self, name: str, owner: str | None = None) -> ScheduleRecord:
        """Fire again; times that passed meanwhile are not missed. Raises NotFound."""
        found = self.get(name, owner)
        if found.is_paused:
            self._store.change(found.id, is_paused=False, since_unix_s=self._clock())
        return self.get(name, owner)

    def remove(self, name: str, owner: str | None = None) -> ScheduleRecord:
        """Its jobs stay; raises NotFound."""
        found = self.get(name, owner)
        self._store.remove(found.id)
        return found

    def history(self, name: str, owner: str | None = None, limit: int = 100) -> list[ScheduledRun]:
        """Its runs, the newest first; raises NotFound."""
        return self._store.runs(self.get(name, owner).id, limit)

    def run(self, name: str, owner: str | None = None) -> ScheduledRun:
        """One now, whatever its time; raises NotFound."""
        found = self.get(name, owner)
        run = run_of(found.id, f"asked {uuid.uuid4().hex}", self._clock() // 1)
        self._decide(found, _spec(found), run)
        self._submitter.submit_waiting(found)
        return next((each for each in self._store.runs(found.id) if each.id == run.id), run)

    @property
    def _store(self) -> ScheduleStore:
        """The store; raises Elsewhere where it is another server's."""
        self._jobs.check_ours()
        return self._known

    # What happens by itself

    def _keep(self, closed: Event) -> None:
        while not closed.wait(_TURN_S):
            try:
                self.turn()
            except TryLater:  # another server has them, or the database does not answer, as /v1/schedules says
                continue
            except Exception:
                _logger.exception("schedules could not be checked; the server tries again")

    def turn(self) -> None:
        """Decide on what is due, and have what waits submitted; raises TryLater."""
        schedules = {each.id: each for each in self._store.all() if not each.is_paused}
        for known in (self._looked_s, self._quiet):
            for gone in known.keys() - schedules.keys():
                del known[gone]
        for each in schedules.values():
            try:
                self._look_at(each)
            except TryLater:
                raise
            except Exception as error:  # one that is broken must not end the others
                self._trouble(each, f"{type(error).__name__}: {error}")
        for schedule_id in dict.fromkeys(run.schedule_id for run in self._store.waiting()):
            if (found := schedules.get(schedule_id)) is not None:
                work = functools.partial(self._submitter.submit_waiting, found)
                self._runs.try_to({found.id: 1, f"of {found.owner}": _OF_ONE}, functools.partial(_quietly, work))

    def _look_at(self, schedule: ScheduleRecord) -> None:
        spec = _spec(schedule)
        if spec.after is not None:
            self._begin_to_look(schedule, spec, spec.after)
        elif spec.cron is not None:
            self._look_at_clock(schedule, spec, spec.cron)
            self._trouble(schedule, "")

    def _trouble(self, schedule: ScheduleRecord, problem: str) -> None:
        """Told once, not at every turn."""
        if problem != schedule.problem:
            self._store.change(schedule.id, problem=problem)
            if problem:
                _logger.warning("the schedule %s has a problem: %s", schedule.name, problem)

    def _look_at_clock(self, schedule: ScheduleRecord, spec: ScheduleSpec, cron: str) -> None:
        now_s, (since_s, until_s) = self._clock(), self._quiet.get(schedule.id, (0.0, 0))
        if schedule.since_unix_s > now_s:  # the clock was put back: no time has two runs, and none is left out
            self._store.change(schedule.id, since_unix_s=now_s)
            return
        if max(since_s, schedule.since_unix_s) <= now_s < until_s:
            return
        found = trigger(Cron.parse(cron), schedule.since_unix_s, now_s, offset_of(spec.tz), spec.when_missed)
        if not isinstance(found, Fire):
            self._quiet[schedule.id] = now_s, found.until_s
            return
        key = f"cron {found.last_s}" if found.run else f"missed {found.last_s}"
        run = run_of(schedule.id, key, found.last_s, RunState.WAITING if found.run else RunState.MISSED)
        run = dataclasses.replace(run, reason=found.missed_shown if found.missed else "")
        self._decide(schedule, spec, run, since_unix_s=float(found.last_s))

    def _begin_to_look(self, schedule: ScheduleRecord, spec: ScheduleSpec, location: str) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s.get(schedule.id, -spec.every_s) < spec.every_s:
            return
        work = functools.partial(self._look_at_marker, schedule, spec, location)
        if self._markers.try_to({schedule.id: 1, f"of {schedule.owner}": _OF_ONE}, functools.partial(_quietly, work)):
            self._looked_s[schedule.id] = now_s

    def _look_at_marker(self, schedule: ScheduleRecord, spec: ScheduleSpec, location: str) -> None:
        try:
            marker, problem = self._marker_at(location, schedule.owner) or "", ""
        except TwoshiftError as error:
            marker, problem = "", str(error)
        self._trouble(schedule, problem)
        if marker and (seen := str(uuid.uuid5(uuid.NAMESPACE_URL, marker))) != schedule.marker:
            run = run_of(schedule.id, f"marker {seen}", self._clock() // 1)
            self._decide(schedule, spec, run, marker=seen)

    def _decide(self, schedule: ScheduleRecord, spec: ScheduleSpec, run: ScheduledRun, **values: float | str) -> None:
        output = spec.settings(run)["output"].rstrip("/")
        if self._store.decide(dataclasses.replace(run, output=output), **values) and run.state is RunState.MISSED:
            self._submitter.settled[RunState.MISSED] += 1


def _spec(schedule: ScheduleRecord) -> ScheduleSpec:
    return msgspec.convert(schedule.spec, ScheduleSpec)


def _quietly(work: Callable[[], None]) -> None:
    """The next turn tries again."""
    with contextlib.suppress(TwoshiftError):
        work()
