"""As many replica processes as are wanted: started, replaced where they crash, drained where there are too many."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.util import Finalize
from typing import Protocol, assert_never

from twoshift.error_codec import decode_error
from twoshift.errors import Broken
from twoshift.fleet.child import Child
from twoshift.fleet.control import FromChild, Loaded, LoadFailed, Noted, UsageReport, WorkEnded, WorkSaid
from twoshift.fleet.member import Member, Stage
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.types import ReplicaCounts

__all__ = ["Following", "Supervisor"]

_logger = logging.getLogger("twoshift.fleet")
_TICK_S = 0.25
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0  # before a replica is started again; doubled each time
_START_S = 1800.0  # for a model to be loaded and measured
_LASTING_S = 30.0  # after which one that crashes has nothing to do with those before it
_FAILED_STARTS = 5  # one after the other: another one would fail, too, and is tried only now and then
_DRAIN_S = 60.0  # for the live requests of a replica that goes
_STOP_S = 5.0  # for its model to be let go


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
    """Any thread may ask it; one of its own does what is to be done."""

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
        self._wanted = wanted
        self._numbers = itertools.count()
        self._members: list[Member] = []
        self._failures = 0  # deaths one after the other, of replicas that did not last
        self._failed_starts = 0
        self._start_s = 0.0  # not before that
        self._given_up = ""  # why there are too few, and will be for a while
        self._first_error: Exception | None = None
        self._settled = False  # all were ready once
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
            self._lock.wait_for(lambda: self._first_error is not None or self._settled)
            if self._first_error is not None:
                raise self._first_error

    def members(self) -> list[Member]:
        """Those that take requests."""
        with self._lock:
            return [each for each in self._members if each.stage is Stage.READY]

    def replicas(self) -> ReplicaCounts:
        """One that has crashed is starting again, unless it was given up."""
        with self._lock:
            ready = sum(each.stage is Stage.READY for each in self._members)
            starting = sum(each.stage is Stage.STARTING for each in self._members)
            return ReplicaCounts(ready, starting if self._given_up else max(0, self._wanted - ready))

    def scale_to(self, replicas: int) -> None:
        """So many, at least one; the new ones start in the background, and those that are too many finish first."""
        with self._lock:
            self._wanted = max(1, replicas)
            self._given_up, self._failed_starts = "", 0
            self._nudge()

    def replace(self, member: Member, why: str) -> None:
        """End one that hangs; another one is started."""
        with self._lock:
            if member.blamed or member not in self._members:
                return
            member.blamed = why
        member.child.kill()

    def why_none(self) -> str:
        """Why there is no replica, for people."""
        with self._lock:
            return self._given_up or "its replicas are starting"

    def close(self) -> None:
        """End them all."""
        with self._lock:
            self._closing = True
            self._nudge()
        if self._thread.is_alive():
            self._thread.join()

    # The thread

    def _run(self) -> None:
        while True:
            with self._lock:
                closing, members = self._closing, list(self._members)
            if closing:
                break
            try:
                self._turn(members)
            except Exception:  # the replicas would end with this thread
                _logger.exception("the supervisor of %s", self._spec.name)
                time.sleep(_TICK_S)
        self._end_all()

    def _turn(self, members: Sequence[Member]) -> None:
        for member in members:
            self._listen(member)
        self._adjust()
        waited_for = [self._woken, *(each.child.control for each in self._members)]
        if self._woken in connection.wait(waited_for, _TICK_S):
            os.read(self._woken, 4096)

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
                member.blamed = member.blamed or error.message
                if not self._settled:
                    self._fail(decode_error(error))
            case UsageReport() | WorkSaid() | WorkEnded():
                self._following.said(member, message)
            case _:
                assert_never(message)

    def _opened(self, member: Member, message: Loaded) -> None:
        with self._lock:
            member.opened = message
            if member.stage is not Stage.STARTING:
                return
            self._move(member, Stage.READY)
            self._failed_starts, self._given_up = 0, ""
            ready = sum(each.stage is Stage.READY for each in self._members)
        self._say(f"{self._spec.name}: replica {member.number} is ready, {ready} of {self._wanted}")
        self._following.opened(member)
        with self._lock:
            self._settled = self._settled or ready >= self._wanted
            self._lock.notify_all()

    def _ended(self, member: Member) -> None:
        how = member.child.bury(time.monotonic())
        with self._lock:
            self._members.remove(member)
            was, lasted_s = member.stage, time.monotonic() - member.since_s
            member.gone = member.blamed or how
        self._following.ended(member)
        if was in (Stage.READY, Stage.STARTING):
            self._crashed(member, was, lasted_s)

    def _crashed(self, member: Member, was: Stage, lasted_s: float) -> None:
        text = f"replica {member.number} of {self._spec.name} has ended: {member.gone}"
        _logger.error("%s", text)
        with self._lock:
            self._failures = 0 if was is Stage.READY and lasted_s > _LASTING_S else self._failures
        self._failed(was is Stage.STARTING, member.gone)
        if not self._settled:
            self._fail(Broken(f"{text}, before it was ready"))

    def _failed(self, at_start: bool, why: str) -> None:
        """The next one waits the longer, the more have failed before it."""
        with self._lock:
            self._failures += 1
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(self._failures - 1, 10))
            self._start_s = time.monotonic() + (wait_s if self._failures > 1 else 0.0)
            self._failed_starts += at_start
            if at_start and self._failed_starts >= _FAILED_STARTS:
                self._given_up = f"{self._failed_starts} replicas one after the other could not be started: {why}"
                _logger.error("%s: %s; another one is tried every %g s", self._spec.name, self._given_up, wait_s)

    def _say(self, text: str) -> None:
        with contextlib.suppress(Exception):  # nobody reads it
            self._note(text)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._first_error = self._first_error or error
            self._lock.notify_all()

    def _adjust(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            there = [each for each in self._members if each.stage in (Stage.STARTING, Stage.READY)]
            missing = self._wanted - len(there)
            if missing > 0 and not any(each.opened for each in there) and there:
                missing = 0  # the first one measures, the others read what it has stored
            elif missing > 0 and not there:
                missing = 1
            if self._first_error is not None or now_s < self._start_s:
                missing = min(0, missing)
        for _ in range(missing):
            self._start_one()
        for member in _surplus(there, -missing):
            self._retire(member)
        for member in tuple(self._members):
            self._see_off(member, now_s)

    def _start_one(self) -> None:
        with self._lock:
            taken = {each.slot for each in self._members}
            slot = next(number for number in itertools.count() if number not in taken)
            number = next(self._numbers)
        gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
        try:
            child = Child(self._spec, gpu)
        except OSError as error:  # no more files or processes are to be had
            self._failed(True, f"{error}")
            if not self._settled:
                self._fail(Broken(f"replica {number} of {self._spec.name} could not be started: {error}"))
            return
        with self._lock:
            self._members.append(Member(number, slot, child, since_s=time.monotonic()))

    def _retire(self, member: Member) -> None:
        self._following.leaving(member)
        with self._lock:
            self._move(member, Stage.DRAINING)
            member.until_s = time.monotonic() + _DRAIN_S

    def _see_off(self, member: Member, now_s: float) -> None:
        """A replica that shall go: asked once it has nothing more to answer, made to where it does not."""
        if member.stage is Stage.DRAINING:
            idle = member.link is None or not member.link.outstanding
            if idle or now_s > member.until_s:
                member.child.ask_to_stop()
                with self._lock:
                    self._move(member, Stage.STOPPING)
                    member.until_s = now_s + _STOP_S
        elif member.stage is Stage.STOPPING and now_s > member.until_s:
            member.child.kill()
        elif member.stage is Stage.STARTING and now_s > member.since_s + _START_S:
            member.blamed = f"it was not ready within {_START_S:g} s"
            member.child.kill()

    def _move(self, member: Member, stage: Stage) -> None:
        member.stage, member.since_s = stage, time.monotonic()

    def _end_all(self) -> None:
        until_s = time.monotonic() + _STOP_S
        for member in self._members:
            if member.stage is Stage.STARTING:
                member.child.kill()
            else:
                member.child.ask_to_stop()
        for member in self._members:
            member.child.bury(until_s)
        with self._lock:
            self._ended_all = True
            os.close(self._wake)
            os.close(self._woken)


def _surplus(there: Sequence[Member], count: int) -> list[Member]:
    """Those that go first: who has not begun yet, then who has the least to finish."""
    if count <= 0:
        return []
    order = sorted(there, key=lambda each: (each.stage is Stage.READY, _outstanding(each), -each.number))
    return order[:count]


def _outstanding(member: Member) -> int:
    return 0 if member.link is None else member.link.outstanding
