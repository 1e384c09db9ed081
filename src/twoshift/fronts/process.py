"""A front in a process of its own: it reads, admits and prepares live requests, and asks the replicas."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from twoshift.endpoints.known import told_openai
from twoshift.extras import needed
from twoshift.fleet.control import Loaded
from twoshift.fleet.llm_model import FleetLlm
from twoshift.fleet.model import FleetModel
from twoshift.fronts.following import FollowedFleet
from twoshift.fronts.messages import (
    BackendFacts,
    CandidateReport,
    DeploymentFacts,
    Drain,
    FrontReport,
    ReplicaLoaded,
    Report,
    Snapshot,
    ToFront,
)
from twoshift.logs import follow_parent_log
from twoshift.parent_process import begin_child
from twoshift.policy.fronts import front_for
from twoshift.ports import Blobs
from twoshift.serve.candidate import begin_candidate, end_candidate
from twoshift.serve.deployments import Deployment, Deployments, DeploymentState, Serving
from twoshift.serve.front import add_live_faces, grpc_server, http_limits
from twoshift.serve.http.app import App
from twoshift.serve.http.gate import Gate
from twoshift.serve.http.handover import Handover, HandoverListener, hand_over
from twoshift.serve.http.messages import path_of
from twoshift.serve.http.oip import told_oip
from twoshift.serve.http.peers import HeadDecisions
from twoshift.serve.http.server import HttpServer, SharedPort
from twoshift.serve.keys import Access, Keys
from twoshift.serve.precomputed_tables import PrecomputedTables
from twoshift.serve.request_accounting import log_accesses
from twoshift.serve.rollout_table import RolloutTable
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings
from twoshift.serve.shadow import shadow_of
from twoshift.serve.shared_limits import SharedLimits
from twoshift.serve.tls import tls_files
from twoshift.serve.tracing import Traces
from twoshift.serve.versions import VersionSplit

if TYPE_CHECKING:
    from twoshift.serve.grpc.server import GrpcServer

__all__ = ["FrontSpec", "front_main"]

_logger = logging.getLogger("twoshift.fronts")
_REPORT_S = 0.25
_GARBAGE = 20_000  # as in the server's own loop


@dataclass(frozen=True, slots=True)
class FrontSpec:
    """What every front of a server is made of."""

    settings: ServeSettings
    handover: Path  # where the main process takes the connections that are not for a front
    grpc_address: str | None  # of all fronts; None: no gRPC
    grpc_path: Path  # where the main process takes the calls that are not for a front
    limits: Path  # of keys and tenants, which all processes share
    blobs_for: Callable[[str], Blobs]  # where precomputed answers lie


def front_main(
    sockets: Sequence[socket.socket], control: Connection, spec: FrontSpec, number: int, parent: int
) -> None:
    """The process, from its start to its end."""
    begin_child(parent, f"ts-front-{number}")
    follow_parent_log()
    log_accesses(spec.settings)
    gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
    code = 1
    try:
        needed("uvloop", "serve", "serve", "twoshift").run(_FrontProcess(spec, number, control).serve(sockets))
        code = 0
    except BaseException:
        _logger.exception("front-end process %d ends because of an error", number)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@dataclass(slots=True)
class _Backend:
    model: FleetModel | FleetLlm
    fleet: FollowedFleet
    serving: Serving | None = None  # once a deployment has it


class _FrontProcess:
    """On its loop; a thread listens to the main process."""

    def __init__(self, spec: FrontSpec, number: int, control: Connection) -> None:
        self._spec, self._settings, self._control, self._number = spec, spec.settings, control, number
        self._limits = SharedLimits.open(spec.limits, number)
        self._keys = Keys(spec.settings.keys, tenants=spec.settings.tenants, shared=self._limits)
        self._service = Service(Deployments())
        self._precomputed = PrecomputedTables(spec.blobs_for)  # the main process builds what is missing
        self._service.precomputed = self._precomputed.of
        self._app = App(told_openai, self._keys)
        self._app.tell_below("/v2", told_oip)
        self._tls = tls_files(spec.settings)
        self._handover = Handover(spec.handover, self._is_local)
        self._loaded: dict[tuple[int, int], Loaded] = {}
        self._backends: dict[int, _Backend] = {}
        self._snapshot = self._asked = 0
        self._drained: bool | None = None
        self._following = asyncio.Event()  # a first snapshot
        self._drain: asyncio.Future[float] | None = None

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Until it is told to drain."""
        service, settings = self._service, self._settings
        service.traces = None if settings.otlp_endpoint is None else Traces(settings.otlp_endpoint)
        service.start()
        add_live_faces(self._app, service)
        app, shared = self._app, SharedPort(self._handover, self._limits.connections, self._dealt)
        decisions = HeadDecisions(app.admit, gate=Gate(app, service.host, service))
        self._http = HttpServer(app.handle, app.refused, http_limits(settings), decisions, shared, self._tls)
        grpc = self._bound_grpc()
        loop = asyncio.get_running_loop()
        self._drain = loop.create_future()
        threading.Thread(target=self._listen, args=(loop,), name="twoshift-control", daemon=True).start()
        self._report()  # it listens: what there is may be long, and nobody waits for it to be read
        await self._following.wait()  # before that it would deny to know what is loading
        door = self._door(self._number)
        door.unlink(missing_ok=True)  # of one of this number that was killed
        taking = HandoverListener(door, self._http.take_over)
        await self._http.start_on(sockets)
        if grpc is not None:
            await grpc.start()
        reporting = asyncio.ensure_future(self._report_often())
        grace_s = await self._drain
        service.drain()
        taking.close()
        doors = [each for each in (self._http, grpc) if each is not None]
        self._drained = all(await asyncio.gather(*(each.drain(grace_s) for each in doors)))
        reporting.cancel()
        if service.traces is not None:
            service.traces.close()
        self._report()

    def _bound_grpc(self) -> GrpcServer | None:
        """Raises OSError; connections that come before there is something to follow wait."""
        spec = self._spec
        if spec.grpc_address is None:
            return None
        made = grpc_server(self._service, spec.settings, self._keys, self._tls, forward_to=spec.grpc_path)
        made.bind(spec.grpc_address)
        return made

    def _door(self, front: int) -> Path:
        """Where a front takes connections that another one has accepted."""
        return self._spec.handover.parent / f"front-{front}"

    async def _dealt(self, accepted: socket.socket) -> bool:
        """Whether another front, which has fewer connections, has taken it."""
        counts = self._limits.connections.by_process()[1 : 1 + self._service.sharers]
        chosen = front_for(counts, self._number - 1) if self._number <= len(counts) else None
        if chosen is None:
            return False
        try:
            await hand_over(str(self._door(chosen + 1)), accepted.fileno(), b"")
        except OSError:  # it is just being replaced
            return False
        return True

    def _is_local(self, method: str, target: bytes) -> bool:
        """Live requests alone: everything else is the main process's, which has the whole picture."""
        if method != "POST":
            return False
        return self._app.needs_of(method, path_of(target)) is Access.SERVE

    # From the main process

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while True:
                loop.call_soon_threadsafe(self._hear, self._control.recv())
        except (EOFError, OSError, RuntimeError):
            os._exit(0)  # the main process is gone, or this one ends

    def _hear(self, message: ToFront) -> None:
        match message:
            case ReplicaLoaded(backend, number, loaded):
                self._loaded[backend, number] = loaded
            case Snapshot():
                self._follow(message)
                self._report()
            case Report(number):
                self._asked = number
                self._report()
            case Drain(grace_s):
                if self._drain is not None and not self._drain.done():
                    self._drain.set_result(grace_s)
            case _:
                assert_never(message)

    def _follow(self, told: Snapshot) -> None:
        self._service.sharers, self._service.is_started = told.fronts, told.is_started
        for facts in told.backends:
            self._follow_backend(facts, told)
        wanted = {each.name for each in told.deployments}
        models = self._service.models
        for gone in [each for name, each in models.all.items() if name not in wanted]:
            models.remove(gone)
            self._precomputed.follow(gone.name, None)
        for facts in told.deployments:
            self._follow_deployment(facts)
        named = {each.number for each in told.backends}
        replicas = {(each.number, replica) for each in told.backends for replica in each.replicas}
        for number in [each for each in self._backends if each not in named]:
            self._backends.pop(number).model.close()
        self._loaded = {key: each for key, each in self._loaded.items() if key in replicas}
        if not self._snapshot:
            gc.collect()
            gc.freeze()
        self._snapshot = told.number
        self._following.set()

    def _follow_backend(self, facts: BackendFacts, told: Snapshot) -> None:
        known = self._backends.get(facts.number)
        if known is not None:
            known.fleet.follow(facts.replicas, facts.why_none, facts.killed)
        elif facts.replicas:
            name = next((each.name for each in told.deployments if facts.number in _backends_of(each)), "")
            model = FleetLlm(name) if facts.is_language else FleetModel(name, prepares=True)
            fleet = FollowedFleet(model.group, lambda number: self._loaded[facts.number, number])
            fleet.follow(facts.replicas, facts.why_none)
            model.open(fleet)
            self._backends[facts.number] = _Backend(model, fleet)

    def _follow_deployment(self, facts: DeploymentFacts) -> None:
        models = self._service.models
        deployment = models.all.get(facts.name)
        if deployment is None:
            deployment = models.add(Deployment(facts.name, facts.version, facts.created_unix_s))
            known = self._settings.models.get(facts.name)  # one that came later has the defaults
            deployment.may_skip_device = self._precomputed.follow(facts.name, known)
        deployment.adapters = facts.adapters
        backend = None if facts.backend is None else self._backends.get(facts.backend)
        self._follow_candidate(deployment, facts, backend)
        serving = deployment.serving
        if backend is not None and (serving is None or serving.backend is not backend.model):
            self._service.deploy(deployment, backend.model)
            backend.serving = deployment.serving
        state = facts.state
        if state is DeploymentState.READY and backend is None:
            state = DeploymentState.LOADING  # none of its replicas takes requests now
        if (deployment.state, deployment.reason) != (state, facts.reason):
            models.move(deployment, state, facts.reason)

    def _follow_candidate(self, deployment: Deployment, facts: DeploymentFacts, backend: _Backend | None) -> None:
        """A version that is tried comes, gets its share, and is promoted or let go."""
        split, told = deployment.split, facts.candidate
        if split is not None and (told is None or told.rollout != split.salt):
            if split.shadow is not None:
                split.shadow.close()
            promoted = backend is not None and split.candidate.backend is backend.model
            end_candidate(self._service, split, promoted)
            split = None
        beside = None if told is None else self._backends.get(told.backend)
        if told is None or beside is None or deployment.serving is None:
            return
        if split is None:
            split = begin_candidate(self._service, deployment, beside.model, told.rollout)
            beside.serving = split.candidate.serving
        split.share = told.share
        if told.copies and split.shadow is None:
            known = self._settings.models.get(deployment.name)  # one that came later has the defaults
            table = RolloutTable() if known is None else known.rollout
            split.shadow = shadow_of(table, split, asyncio.get_running_loop())
        elif not told.copies and split.shadow is not None:
            split.shadow.close()
            split.shadow = None

    # To the main process

    async def _report_often(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            self._service.follow_curves()
            self._report()

    def _report(self) -> None:
        with contextlib.suppress(OSError):  # the main process is gone, and so is this one in a moment
            self._control.send(self._told())

    def _told(self) -> FrontReport:
        models = self._service.models
        outstanding = {
            (number, replica): count
            for number, each in self._backends.items()
            for replica, count in each.fleet.outstanding().items()
        }
        inside = {number: each.serving.inside for number, each in self._backends.items() if each.serving is not None}
        return FrontReport(
            self._snapshot,
            self._asked,
            self._service.host.facts(self._http.connections),
            outstanding,
            inside,
            {name: each.rows_per_request for name, each in models.items()},
            {name: each.metrics.counts() for name, each in models.all.items()},
            {name: each.metrics.take_recent() for name, each in models.all.items()},
            {name: each.counts() for name, each in self._keys.tenants.items()},
            {name: _candidate_of(each.split) for name, each in models.items() if each.split is not None},
            self._drained,
        )


def _backends_of(facts: DeploymentFacts) -> tuple[int | None, ...]:
    return (facts.backend,) if facts.candidate is None else (facts.backend, facts.candidate.backend)


def _candidate_of(split: VersionSplit[Deployment]) -> CandidateReport:
    shadow = split.shadow
    return CandidateReport(
        split.salt,
        [] if split.stable.watch is None else split.stable.watch.taken(),
        [] if split.candidate.watch is None else split.candidate.watch.taken(),
        [] if shadow is None else shadow.taken(),
        None if shadow is None else shadow.taken_differences(),
        split.counted.counts(),
    )
