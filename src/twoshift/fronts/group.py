"""The front processes of a server: started, told what is served, asked what they have counted, and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import multiprocessing
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import connection
from typing import Any

from twoshift.errors import Broken
from twoshift.fleet.fleet_backend import FleetBackend
from twoshift.fleet.llm_model import FleetLlm
from twoshift.fleet.member import Member
from twoshift.fronts.counts import FrontCounts
from twoshift.fronts.messages import (
    BackendFacts,
    CandidateFacts,
    DeploymentFacts,
    Drain,
    FrontReport,
    ReplicaLoaded,
    Report,
    Snapshot,
    ToFront,
)
from twoshift.fronts.process import FrontSpec, front_main
from twoshift.parent_process import signals_blocked
from twoshift.serve.deployments import Deployment, DeploymentState
from twoshift.serve.keys import Keys
from twoshift.serve.live_model import LiveModel
from twoshift.serve.service import Service

__all__ = ["FrontGroup"]

_logger = logging.getLogger("twoshift.fronts")
_TICK_S = 0.02  # as long may a front not know why a replica has ended, with requests that another one could answer
_LOOK_S = 1.0  # between two looks at how many there should be
_AGAIN_S = 1.0  # after a front has ended, for another one to start
_FAILURES = 3  # of a front that never served, after which something must be changed first
_SILENT_S = 10.0  # without a report: it hangs
_HEARD_S = 5.0  # for fronts to follow what they are told
_END_S = 1.0  # after its grace


class _Front:
    """One process; the group's thread owns it."""

    def __init__(self, number: int, sockets: Sequence[socket.socket]) -> None:
        self.number, self.sockets = number, sockets  # which outlive it: who connects meanwhile waits for the next
        self.process: Any = None
        self.control: Any = None
        self.report: FrontReport | None = None
        self.told: Snapshot | None = None
        self.replicas: set[tuple[int, int]] = set()  # that it knows
        self.again_s = 0.0  # when it is started
        self.failures = 0  # in a row, before it said anything
        self.heard_s = math.inf  # of it, the last time; inf: never
        self.lock = threading.Lock()  # of what is sent

    def start(self, spec: FrontSpec) -> None:
        """Raises OSError where no process is to be had."""
        context = multiprocessing.get_context("spawn")  # a fork would share locks
        control, theirs = context.Pipe()
        _limit_waits(control.fileno())
        given = (self.sockets, theirs, spec, self.number, os.getpid())
        process = context.Process(target=front_main, args=given, name=f"twoshift-front-{self.number}")
        try:
            with signals_blocked():
                process.start()
        except BaseException:
            control.close()
            raise
        finally:
            theirs.close()
        self.process, self.control = process, control

    def send(self, message: ToFront) -> None:
        """Lost where it is gone; one that does not read is made to go."""
        with self.lock:
            try:
                if self.control is not None:
                    self.control.send(message)
            except BlockingIOError:
                self.process.kill()
            except OSError:
                pass

    def hear(self, tell: Callable[[int, FrontReport], None]) -> bool:
        """What it has said since; whether it lives."""
        try:
            while self.control.poll():
                report: FrontReport = self.control.recv()
                tell(self.number, report)
                self.report, self.heard_s = report, time.monotonic()
        except (EOFError, OSError):
            return False
        return self.process.is_alive()

    def end(self) -> int | None:
        """Whatever it does; how it ended."""
        self.process.kill()
        self.process.join()
        self.control.close()
        code, self.process, self.control = self.process.exitcode, None, None
        self.report = self.told = None
        self.heard_s = math.inf
        self.replicas.clear()
        return code


class FrontGroup:
    """Any thread may ask it; one of its own starts the processes, since the system ends them with that thread."""

    def __init__(
        self,
        spec: FrontSpec,
        service: Service,
        keys: Keys,
        wanted: Callable[[], int],
        bind: Callable[[], Sequence[socket.socket]],
    ) -> None:
        """`wanted` says how many there should be; they never become fewer. `bind`: sockets of another one."""
        self._spec, self._service, self._wanted, self._bind = spec, service, wanted, bind
        self.counts = FrontCounts(service.models, keys.tenants, self.refresh)
        self._fronts: list[_Front] = []
        self._backends: dict[int, FleetBackend[Any]] = {}
        self._numbers, self._asked = itertools.count(1), itertools.count(1)
        self._last = Snapshot(0)
        self._looked_s = -math.inf  # at how many there should be
        self._stepped_s = math.inf
        self._lock = threading.Condition()  # guards all of this
        self._draining = self._ended = False
        self.failed = ""  # why fronts cannot be started
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._run, name="twoshift-fronts", daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    @property
    def size(self) -> int:
        """How many there are, or will be in a moment."""
        return len(self._fronts)

    def sync(self, timeout_s: float = _HEARD_S) -> bool:
        """Until every front knows what is served now; False where one does not in time."""
        self._nudge()
        now = self._snapshot()
        return self._wait_for(lambda each: _follows(each, now), timeout_s)

    def settle(self, timeout_s: float) -> bool:
        """The same once there are as many fronts as there should be for what is served now."""
        self._looked_s = -math.inf
        self._nudge()
        with self._lock:
            self._lock.wait_for(lambda: self._ended or len(self._fronts) >= self._wanted(), timeout_s)
        return self.sync(timeout_s)

    def check(self) -> None:
        """Raises Broken where fronts cannot be started."""
        if self.failed:
            raise Broken(
                f"{self.failed}; the error of this process is printed above. "
                "To serve without front-end processes, use --fronts 1"
            )

    def let_go(self, backend: Any, timeout_s: float) -> bool:
        """Until no front has a request inside a backend that answers for no deployment any more; then none asks it."""
        self.sync(min(timeout_s, _HEARD_S))
        with self._lock:
            number = self._number_of(backend)
        if number is None:
            return True
        ended = self._wait_for(lambda each: each.report is None or not each.report.inside.get(number), timeout_s)
        with self._lock:
            del self._backends[number]
        self._nudge()
        return ended

    async def refresh(self) -> None:
        """Until what fronts have counted by now is known here."""
        asked = next(self._asked)
        for each in self._living():
            each.send(Report(asked))
        heard = partial(self._wait_for, lambda each: each.report is None or each.report.asked >= asked, _HEARD_S)
        await asyncio.get_running_loop().run_in_executor(None, heard)

    async def drain(self, grace_s: float, hurry: asyncio.Event) -> bool:
        """They take nothing new and answer what was admitted; False where time ran out."""
        self._draining = True
        self._close_sockets()  # or connections would go on to wait here
        fronts = self._living()
        for each in fronts:
            each.send(Drain(grace_s))
        until_s = time.monotonic() + grace_s + _END_S
        while any(each.process is not None for each in fronts):
            if hurry.is_set() or time.monotonic() > until_s:
                break
            await asyncio.sleep(0.01)
        in_peace = self.counts.in_peace and not any(each.process is not None for each in fronts)
        self._ended = True
        self._nudge()
        return in_peace

    def close(self) -> None:
        """End them, and the thread."""
        self._draining = self._ended = True
        self._nudge()
        if self._thread.is_alive():
            self._thread.join()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self._fronts:
            for made in each.sockets:
                made.close()

    # The thread

    def _run(self) -> None:
        while not self._ended:
            try:
                self._step()
            except Exception:  # the fronts would end with this thread
                _logger.exception("the front-end processes could not be checked; the server tries again")
                time.sleep(_TICK_S)
        for each in self._living():
            each.end()
        with self._lock:
            self._lock.notify_all()

    def _step(self) -> None:
        now_s = time.monotonic()
        stood_still, self._stepped_s = now_s - self._stepped_s > _SILENT_S / 2, now_s
        if not self._draining:
            self._start()
        snapshot = self._snapshot()
        for each in self._living():
            if not each.hear(self.counts.heard):
                self._gone(each)
                continue
            if stood_still:  # this process: nobody is blamed
                each.heard_s = now_s
            elif now_s - each.heard_s > _SILENT_S:
                _logger.error("front-end process %d has sent no heartbeat for %g s", each.number, _SILENT_S)
                each.process.kill()
            if not self._draining and each.report is not None and each.told != snapshot:
                self._tell(each, snapshot)
        with self._lock:
            self._lock.notify_all()
        news = [self._woken, *(each.control for each in self._living())]
        if self._woken in connection.wait(news, _TICK_S):
            os.read(self._woken, 4096)

    def _start(self) -> None:
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            while len(self._fronts) < self._wanted():
                self._fronts.append(_Front(len(self._fronts) + 1, self._bind()))
        for each in self._fronts:
            if each.process is None and time.monotonic() >= each.again_s:
                each.again_s = time.monotonic() + _AGAIN_S
                each.start(self._spec)

    def _gone(self, front: _Front) -> None:
        front.failures = front.failures + 1 if front.report is None else 0
        self.counts.ended(front.number, self._draining)
        code = front.end()
        if front.failures >= _FAILURES:
            self.failed = (
                f"front-end process {front.number} exited with code {code}; it failed {_FAILURES} times "
                "before it was ready"
            )
        if not self._draining:
            _logger.error("front-end process %d exited with code %s; starting another one", front.number, code)

    def _tell(self, front: _Front, snapshot: Snapshot) -> None:
        with self._lock:
            backends = [(facts, self._backends.get(facts.number)) for facts in snapshot.backends]
        for facts, backend in backends:
            for member in () if backend is None else backend.members():
                key = (facts.number, member.number)
                if member.opened is not None and key not in front.replicas:
                    front.replicas.add(key)
                    front.send(ReplicaLoaded(*key, member.opened))
        front.told = snapshot
        front.send(snapshot)

    # What there is

    def _snapshot(self) -> Snapshot:
        """The same as the last one where nothing has changed."""
        with self._lock:
            deployments = [self._deployment(each) for each in self._service.models.all.values()]
            backends = [self._backend(number, each) for number, each in self._backends.items()]
            known = tuple(deployments), tuple(backends), max(1, len(self._fronts)), self._service.is_started
            made = Snapshot(self._last.number, *known)
            if made != self._last:
                self._last = replace(made, number=made.number + 1)
            return self._last

    def _deployment(self, each: Deployment) -> DeploymentFacts:
        serving, number, split, candidate = each.serving, None, each.split, None
        if serving is not None and each.state is DeploymentState.READY:
            number = self._numbered(serving.backend)
        if split is not None and number is not None and split.candidate.serving is not None:
            beside = self._numbered(split.candidate.serving.backend)
            candidate = CandidateFacts(split.salt, beside, split.share, split.shadow is not None)
        told = (each.name, each.version, each.created_unix_s, each.state, each.reason)
        return DeploymentFacts(*told, number, each.adapters, candidate)

    def _numbered(self, backend: LiveModel) -> int:
        number = self._number_of(backend)
        if number is None:
            number = next(self._numbers)
            assert isinstance(backend, FleetBackend)  # noqa: S101 - no model runs in a process with fronts
            self._backends[number] = backend
        return number

    def _number_of(self, backend: Any) -> int | None:
        return next((number for number, each in self._backends.items() if each is backend), None)

    def _backend(self, number: int, backend: FleetBackend[Any]) -> BackendFacts:
        members = backend.members()
        for member in members:
            if isinstance(member, Member):
                member.elsewhere = partial(self._outstanding, number, member.number)
        replicas = tuple(each.number for each in members if each.opened is not None)
        why_none = "" if replicas else backend.why_none()
        return BackendFacts(number, isinstance(backend, FleetLlm), replicas, why_none, tuple(backend.killed()))

    def _outstanding(self, backend: int, replica: int) -> int:
        """Requests of fronts that a replica has not answered; at least one for a front that may still ask it."""
        return sum(_asks(each, backend, replica) for each in self._living())

    def _living(self) -> list[_Front]:
        return [each for each in self._fronts if each.process is not None]

    def _wait_for(self, holds: Callable[[_Front], bool], timeout_s: float) -> bool:
        """Of all fronts that live."""
        with self._lock:
            return self._lock.wait_for(
                lambda: self._ended or bool(self.failed) or all(map(holds, self._living())), timeout_s
            )

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):  # it is awake, or gone
            os.write(self._wake, b".")


def _limit_waits(pipe: int) -> None:
    """A process that stands still holds up who writes to it, or reads the rest of a message, no longer than that."""
    with socket.socket(fileno=os.dup(pipe)) as made:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            made.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(_SILENT_S), 0))


def _follows(front: _Front, snapshot: Snapshot) -> bool:
    return front.report is not None and front.report.snapshot >= snapshot.number


def _asks(front: _Front, backend: int, replica: int) -> int:
    told, report = front.told, front.report
    if report is None or told is None:
        return 0
    named = any(each.number == backend and replica in each.replicas for each in told.backends)
    waiting = report.outstanding.get((backend, replica), 0)
    return max(1, waiting) if named or report.snapshot < told.number else waiting
