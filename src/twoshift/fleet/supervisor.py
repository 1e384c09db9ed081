"""The replica processes of a model: what is there is observed, and what the reconciler decides is done."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.util import Finalize
from typing import ClassVar, Protocol, assert_never

from twoshift.error_codec import decode_error
from twoshift.errors import Broken
from twoshift.fleet.child import Child
from twoshift.fleet.control import FromChild, Loaded, LoadFailed, Noted, UsageReport, WorkEnded, WorkSaid
from twoshift.fleet.group import other_model
from twoshift.fleet.member import Member
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.policy.reconcile import ReconcilePolicy
from twoshift.policy.reconcile_values import (
    Action,
    Drain,
    Failure,
    Kill,
    Observed,
    ReplicaStage,
    Shift,
    Start,
    Stop,
    VersionWanted,
    Wait,
    Wanted,
)
from twoshift.types import ReplicaCounts

__all__ = ["Following", "Supervisor"]

_logger = logging.getLogger("twoshift.fleet")
_TICK_S = 0.25
_FAILURES = 32  # that are remembered


class Following(Protocol):
    """Who is told what becomes of replicas; in the supervisor's thread."""

    def opened(self, member: Member) -> None:
        """It can be asked."""
        ...

    def leaving(self, member: Member) -> None:
        """It shall be asked nothing new."""
        ...

    def ended(self, member: Member) -> None:
        """It is gone."""
        ...

    def said(self, member: Member, message: UsageReport | WorkSaid | WorkEnded) -> None:
        """About a job."""
        ...


class Supervisor:
    """Any thread may ask it; one of its own observes and acts."""

    scales_itself: ClassVar[bool] = False

    def __init__(
        self,
        spec: ReplicaSpec,
        wanted: int,
        gpus: Sequence[str],
        following: Following,
        note: Callable[[str], None],
    ) -> None:
        """`gpus` as CUDA_VISIBLE_DEVICES has them, shared out in turn; none: the CPU, or what the model chooses."""
        self._spec, self._gpus, self._following, self._note = spec, gpus, following, note
        self.policy = ReconcilePolicy()
        self._wanted = VersionWanted(spec.version, wanted)
        self._numbers = itertools.count()
        self._members: dict[int, Member] = {}
        self._failures: deque[Failure] = deque(maxlen=_FAILURES)
        self.crashes = 0  # members that nobody had asked to end
        self.cold_start_s = 0.0  # of the last that became ready
        self._slept = False  # none was wanted, and none has become ready since
        self._killed: deque[int] = deque(maxlen=_FAILURES)  # of those: from outside
        self._first_error: Exception | None = None
        self._settled = False  # all were ready once
        self._first: Loaded | None = None  # with which all others have to agree
        self._closing = self._ended_all = False
        self._lock = threading.Condition()  # guards all of this
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._run, name="twoshift-supervisor", daemon=True)

    def start(self) -> None:
        """Until all are ready; raises what the first that cannot start says."""
        self._thread.start()
        Finalize(None, self.close, exitpriority=1)  # a program that forgets it would wait for its replicas for ever
        with self._lock:
            self._lock.wait_for(lambda: self._first_error is not None or self._settled or self._closing)
            if self._first_error is not None:
                raise self._first_error
            if self._closing:
                raise Broken(f"{self._spec.name} was stopped while its replicas were starting")

    def members(self) -> list[Member]:
        """Those that take requests."""
        with self._lock:
            return [each for each in self._members.values() if each.stage is ReplicaStage.READY]

    def replicas(self) -> ReplicaCounts:
        """One that has crashed is starting again, unless it was given up."""
        with self._lock:
            ready = sum(each.stage is ReplicaStage.READY for each in self._members.values())
            starting = sum(each.stage is ReplicaStage.STARTING for each in self._members.values())
            gave_up = self.policy.gave_up(self._wanted, self._observed())
            return ReplicaCounts(ready, starting if gave_up else max(0, self._wanted.replicas - ready))

    def scale_to(self, replicas: int) -> None:
        """So many; the new ones start in the background, and those that are too many finish first."""
        with self._lock:
            if replicas != self._wanted.replicas:
                self._wanted = VersionWanted(self._spec.version, replicas, asked_s=time.monotonic())
                self._slept = self._slept or not replicas
                self._nudge()

    def wakes_in_s(self) -> float | None:
        """What is left of a start, if one takes as long as the last; None where the replicas do not sleep."""
        with self._lock:
            members = [*self._members.values()]
            is_ready = any(each.stage is ReplicaStage.READY for each in members)
            if not self._slept or is_ready or self.policy.gave_up(self._wanted, self._observed()):
                return None
            begun_s = [each.since_s for each in members if each.stage is ReplicaStage.STARTING]
            # one that is overdue stays so for a while
            return abs(self.cold_start_s - (time.monotonic() - min(begun_s) if begun_s else 0.0))

    def replace(self, member: Member, why: str) -> None:
        """End one that hangs; another one is started."""
        with self._lock:
            member.fault = member.fault or why
            self._nudge()

    def killed(self) -> tuple[int, ...]:
        """Of the last members that something outside ended."""
        with self._lock:
            return tuple(self._killed)

    def why_none(self) -> str:
        """Why there is no replica, for people."""
        with self._lock:
            return self.policy.gave_up(self._wanted, self._observed()) or "the replicas are starting"

    def close(self) -> None:
        """End them all."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
            self._nudge()
        if self._thread.is_alive():
            self._thread.join()

    # The thread

    def _run(self) -> None:
        while not self._closing:
            try:
                self._step()
            except Exception:  # the replicas would end with this thread
                _logger.exception("the supervisor of the replicas of %s has failed", self._spec.name)
                time.sleep(_TICK_S)
        self._end_all()

    def _step(self) -> None:
        """Observe, decide, act, and wait for news."""
        for member in [*self._members.values()]:
            self._listen(member)
        actions: list[Action] = []
        if self._first_error is None:  # else it is about to be closed
            with self._lock:
                observed, now_s = self._observed(), time.monotonic()
                wanted = Wanted((self._wanted,), floor=min(1, self._wanted.replicas))
            actions = self.policy.decide(wanted, observed, now_s)
        for action in actions:
            self._act(action)
        news = [self._woken, *(each.child.control for each in self._members.values())]
        if self._woken in connection.wait(news, _wait_s(actions)):
            os.read(self._woken, 4096)

    def _observed(self) -> Observed:
        return Observed([each.observed() for each in self._members.values()], tuple(self._failures))

    def _act(self, action: Action) -> None:
        match action:
            case Start(version):
                self._start_one(version)
            case Drain(number):
                # in this order: a request that finds nobody to ask has to see that the replicas sleep
                self._move(self._members[number], ReplicaStage.DRAINING)
                self._following.leaving(self._members[number])
            case Stop(number):
                self._members[number].child.ask_to_stop()
                self._move(self._members[number], ReplicaStage.STOPPING)
            case Kill(number, why):
                self._members[number].fault = why
                self._members[number].child.kill()
            case Shift() | Wait():
                pass  # its one version has all of the traffic
            case _:
                assert_never(action)

    def _nudge(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake
            if not self._ended_all:
                os.write(self._wake, b".")

    def _listen(self, member: Member) -> None:
        said, over = member.child.heard()
        for message in said:
            self._hear(member, message)
        if over:
            self._ended(member)

    def _hear(self, member: Member, message: FromChild) -> None:
        match message:
            case Noted(text):
                if member.number == 0:  # the others say the same
                    self._say(text)
            case Loaded():
                self._opened(member, message)
            case LoadFailed(error):
                member.fault = member.fault or error.message
                if not self._settled:
                    self._fail(decode_error(error))
            case UsageReport() | WorkSaid() | WorkEnded():
                self._following.said(member, message)
            case _:
                assert_never(message)

    def _opened(self, member: Member, message: Loaded) -> None:
        with self._lock:
            if member.stage is not ReplicaStage.STARTING:
                return
            self._first = self._first or message
            if why := other_model(self._first, message):  # it ends as one that could not start
                member.fault = why
                return
            member.opened, member.ready_s, self._slept = message, time.monotonic(), False
            self.cold_start_s = member.ready_s - member.since_s
            self._move(member, ReplicaStage.READY)
            ready, wanted = len(self.members()), self._wanted.replicas
        self._say(f"{self._spec.name}: replica {member.number} is ready, {ready} of {wanted}")
        self._following.opened(member)
        with self._lock:
            self._settled = self._settled or ready >= wanted
            self._lock.notify_all()

    def _ended(self, member: Member) -> None:
        how = member.child.bury(time.monotonic())
        with self._lock:
            del self._members[member.number]
            member.gone, member.was_killed = member.fault or how, member.child.was_killed and not member.fault
            if member.was_killed:
                self._killed.append(member.number)
        self._following.ended(member)
        if member.observed().is_live:  # nobody had asked it to
            text = f"replica {member.number} of {self._spec.name} has ended: {member.gone}"
            _logger.error("%s", text)
            self._failed(Failure(member.version, time.monotonic(), member.ready_s, member.gone), text)

    def _failed(self, failure: Failure, text: str) -> None:
        with self._lock:
            self.crashes += 1
            self._failures.append(failure)
            observed = self._observed()
        if gave_up := self.policy.gave_up(self._wanted, observed):
            wait_s = self.policy.wait_s(failure.version, observed, failure.at_s)
            _logger.error("%s: %s; trying again in %g s", self._spec.name, gave_up, wait_s)
        if not self._settled:
            self._fail(Broken(f"the replicas could not be started: {text}"))

    def _say(self, text: str) -> None:
        with contextlib.suppress(Exception):  # nobody reads it
            self._note(text)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._first_error = self._first_error or error
            self._lock.notify_all()

    def _start_one(self, version: str) -> None:
        number, taken = next(self._numbers), {each.slot for each in self._members.values()}
        slot = next(free for free in itertools.count() if free not in taken)
        gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
        try:
            child = Child(self._spec, gpu)
        except OSError as error:  # no more files or processes are to be had
            text = f"replica {number} of {self._spec.name} could not be started: {error}"
            self._failed(Failure(version, time.monotonic(), why=f"{error}"), text)
            return
        with self._lock:
            self._members[number] = Member(number, slot, child, version, since_s=time.monotonic())

    def _move(self, member: Member, stage: ReplicaStage) -> None:
        with self._lock:
            member.stage, member.since_s = stage, time.monotonic()

    def _end_all(self) -> None:
        until_s = time.monotonic() + self.policy.settings.stop_s
        for member in self._members.values():
            if member.stage is ReplicaStage.STARTING:
                member.child.kill()
            else:
                member.child.ask_to_stop()
        for member in self._members.values():
            member.child.bury(until_s)
        with self._lock:
            self._ended_all = True
            os.close(self._wake)
            os.close(self._woken)


def _wait_s(actions: Sequence[Action]) -> float:
    """Until the next look: news of requests that were answered do not wake it."""
    match actions:
        case [Wait(until_s)]:
            return min(_TICK_S, max(0.0, until_s - time.monotonic()))
        case _:
            return _TICK_S
