"""A server: deployments, the doors in front of them, and the services beside them, put together in one place."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.fronts.processes import FrontProcesses, uses_fronts
from twoshift.registry.names import parse_ref
from twoshift.rollout_services import FileChanges, remember_versions, rollout_metrics, rollouts_for
from twoshift.runtime.devices import usable_threads
from twoshift.serve.deployer import Deployer, DeployerHooks, Progress
from twoshift.serve.deployments import Deployment, Deployments
from twoshift.serve.front import Front
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.http.usage import NoUsage
from twoshift.serve.indexes import SearchIndexes
from twoshift.serve.keys import Keys
from twoshift.serve.ledger import Ledger
from twoshift.serve.listening import bound_sockets, check_address, shown_address
from twoshift.serve.live_model import LiveModel
from twoshift.serve.model_settings import check_names, name_of
from twoshift.serve.precomputed_tables import PrecomputedTables
from twoshift.serve.request_accounting import log_accesses
from twoshift.serve.rollouts import Rollouts
from twoshift.serve.service import Service, close_models
from twoshift.serve.settings import ServeSettings, make_settings
from twoshift.serve.tls import TlsFiles, tls_files
from twoshift.serve.tracing import Traces, closed_within
from twoshift.server_services import (
    ServerServices,
    compile_console,
    console_for,
    ledger_for,
    service_metrics,
    services_for,
)
from twoshift.wiring.answer_tables import build_table
from twoshift.wiring.backends import live_model
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.model_loading import check_named
from twoshift.wiring.scalers import scalers_for, scaling_metrics
from twoshift.wiring.version_uses import VersionUses

if TYPE_CHECKING:
    from types import TracebackType

    from twoshift.fleet.scaler import Scaler
    from twoshift.serve.exposition import MoreMetrics
    from twoshift.ui.console import Console

__all__ = ["Server"]

_logger = logging.getLogger("twoshift.serve")
_TRACES_S = 5.0
_GARBAGE = 20_000  # new objects that are looked through together: at 700 it takes a twentieth of a small request
_ANSWERED_S, _CLOSED_S = 1.0, 0.5  # for the models to go, after the last reply; whatever the jobs took
_NOW_S = 0.5
_FRONTS_S = 60.0  # for front processes to start


class Server:
    """Answers live requests and runs jobs for the models of its settings.

        with twoshift.Server("minilm", slo_ms=50, port=0) as server:
            client = twoshift.Client(server.address)

    Models are loaded while others are served; they can be added, replaced and removed while it runs.
    """

    def __init__(
        self,
        model: str | ServeSettings,
        *,
        name: str | None = None,
        note: Callable[[str], None] = lambda _text: None,
        progress: Progress | None = None,
        reread: Callable[[], ServeSettings] | None = None,
        **options: Any,
    ) -> None:
        """A model and options, by the names that they have in a configuration file; or all settings at once.

        `note` gets what an operator should read. `reread` gives the settings anew, at SIGHUP. Raises InvalidInput.
        """
        settings = model if isinstance(model, ServeSettings) else _settings_for(model, name, options)
        self.settings = msgspec.structs.replace(settings, models=dict(settings.models))  # more may be added
        self.address, self.grpc_address = "", None
        self.deployments = Deployments()
        self._note, self._reread = note, reread
        self._fronts: FrontProcesses | None = None  # where processes of their own take the live requests
        self._keys = Keys(settings.keys, tenants=settings.tenants)
        self._service = Service(self.deployments)
        self._deployer = Deployer(
            self._service,
            DeployerHooks(
                self._opened,
                self._arrived,
                self._leaving,
                lambda deployment, backend: self._uses.begin(deployment.name, backend.info),
                self._parting,
                self._reloads,
            ),
            settings.grace_s,
            progress or (lambda: contextlib.nullcontext(note)),
        )
        self._service.repository = self._deployer
        self._services: ServerServices | None = None
        self._rollouts: Rollouts | NoJobs | None = None
        self._usage: Ledger | NoUsage | None = None
        self._console: Console | None = None
        self._scalers: dict[str, Scaler] = {}
        self._uses, self._indexes = VersionUses(), SearchIndexes(blobs_for)
        self._precomputed = PrecomputedTables(blobs_for, partial(build_table, tell=note))
        self._service.precomputed = self._precomputed.of
        self._tls: TlsFiles | None = None
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._thread: threading.Thread | None = None
        self._ended: Future[bool] = Future()

    # In Python

    def start(self) -> Server:
        """Serve in a thread; returns once every model is loaded or has failed. Raises what the first one that failed
        says, where all have.
        """
        _check_guarded(self.settings)
        self._bind(owns_process=False)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run_in_thread, args=(ready.set,), name="twoshift", daemon=True)
        self._ended.add_done_callback(lambda _: ready.set())
        self._thread.start()
        ready.wait()
        if self._ended.done():
            self._ended.result()
        return self

    def close(self) -> bool:
        """Answer what was admitted, and end; False where not everything has ended within the grace."""
        if self._thread is None:
            return True
        if self._loop is not None and not self._ended.done():
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        return self._ended.result()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self, name: str, model: str | None = None, **options: Any) -> Deployment:
        """Load a deployment that is known, as it is set or with these settings; or a new one, with its model.

        What answers for it now does so until the new one is loaded, and goes on where that fails. Raises why.
        """
        before = self.settings.models.get(name)
        if model is not None or options:
            given = {"model": model or (before and before.model), **options}
            made = make_settings({"models": {name: given}}).models[name]
            check_names({**self.settings.models, name: made})
            self.settings.models[name] = made
        if name in self.settings.models and name not in self.deployments.all:
            self.deployments.add(Deployment(name))
        try:
            self._deployer.load(name).result()
        except BaseException:
            if before is not None:
                self.settings.models[name] = before
            raise
        return self.deployments.find(name)

    def unload(self, name: str) -> None:
        """Answer what was admitted, then let the model go; its name stays known, and `load` loads it again."""
        self._deployer.unload(name).result()

    def remove(self, name: str) -> None:
        """The same, and its name is forgotten."""
        self._deployer.unload(name, forget=True).result()
        self.settings.models.pop(name, None)

    @property
    def front_processes(self) -> int:
        """That take live requests; 0: this process does."""
        return 0 if self._fronts is None else self._fronts.group.size

    # As a program

    def run(self, ready: Callable[[], None]) -> bool:
        """Serve in this thread until SIGTERM or SIGINT; False where not everything has ended within the grace."""
        self._bind(owns_process=True)
        return self._run(ready, owns_process=True)

    def _run_in_thread(self, ready: Callable[[], None]) -> None:
        try:
            self._ended.set_result(self._run(ready, owns_process=False))
        except BaseException as error:
            self._ended.set_exception(error)

    def _bind(self, owns_process: bool) -> None:
        """All that can be wrong is found before a model is loaded."""
        settings = self.settings
        if settings.grpc_port is not None:
            needed("grpc", "grpc", f"{settings.grpc_port}", "grpc_port")
            needed("google.protobuf", "grpc", f"{settings.grpc_port}", "grpc_port")
        for each in settings.models.values():
            if each.index is not None:
                needed("pyarrow", "index", each.index, "index")
        for name, each in settings.models.items() if settings.engine == "local" else ():
            try:
                check_named(each.model, each.registry or settings.registry)
            except InvalidInput as error:
                raise error.renamed(f"models.{name}.model" if len(settings.models) > 1 else error.field) from None
        self._tls = tls_files(settings)
        log_accesses(settings)
        if uses_fronts(settings, usable_threads(), owns_process):
            self._fronts = FrontProcesses(settings, self._service, usable_threads(), blobs_for)
            self._keys, port = self._fronts.keys, self._fronts.port
        else:
            if settings.grpc_port is not None:
                check_address(settings.host, settings.grpc_port, "grpc_port")
            self._sockets = bound_sockets(settings.host, settings.port, "port")
            port = self._sockets[0].getsockname()[1]
        self.address = f"{'http' if self._tls is None else 'https'}://{shown_address(settings.host, port)}"
        for name, each in settings.models.items():
            self.deployments.add(Deployment(name, adapters=[*each.adapters]))

    def _run(self, ready: Callable[[], None], owns_process: bool) -> bool:
        left_s = self.settings.grace_s
        try:
            left_s = needed("uvloop", "serve", "serve", "twoshift").run(self._serve(ready, owns_process))
        finally:
            ended = self._close_all(left_s)
        return ended

    async def _serve(self, ready: Callable[[], None], owns_process: bool) -> float:
        """Seconds that are left of the grace at the end, 0 where requests were left without an answer."""
        settings, service = self.settings, self._service
        service.traces = None if settings.otlp_endpoint is None else Traces(settings.otlp_endpoint)
        service.start()
        self._loop = asyncio.get_running_loop()
        self._deployer.start()
        front = Front(service, settings, self._keys, self._fronts and self._fronts.limits.connections, self._tls)
        watchdog = asyncio.ensure_future(service.watch())
        stopped = asyncio.ensure_future(self._stop.wait())
        begun = asyncio.ensure_future(self._begin(front, owns_process))
        sockets, self._sockets = self._sockets, []
        if owns_process:
            self._take_signals()
        self._note(f"Listening at {self.address}; loading {', '.join(settings.models)}")
        try:
            if self._fronts is None:
                self.grpc_address = await front.open(sockets)
            else:
                self.grpc_address = self._fronts.grpc_address
                await front.open_behind(self._fronts.handover, self._fronts.grpc_path)
                self._fronts.group.start()
            await asyncio.wait((begun, stopped), return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                begun.result()
                ready()
            await stopped
        except BaseException:
            await front.drain(_NOW_S, self._hurry)
            raise
        _logger.warning(
            "stopping: waiting up to %s for admitted requests; send a second signal to stop now", settings.grace
        )
        until_s, in_peace = time.monotonic() + settings.grace_s, True
        service.drain()
        if self._console is not None:
            self._console.close()
        if self._fronts is not None:  # first: they hand connections over
            in_peace = await self._fronts.group.drain(settings.grace_s, self._hurry)
        in_peace &= await front.drain(max(0.0, until_s - time.monotonic()), self._hurry)
        watchdog.cancel()
        begun.cancel()
        if service.traces is not None:
            await closed_within(service.traces, min(_TRACES_S, max(0.0, until_s - time.monotonic())))
        return max(_ANSWERED_S, until_s - time.monotonic()) if in_peace else 0.0

    async def _begin(self, front: Front, owns_process: bool) -> None:
        """Load what the settings name; requests are taken once the first can answer. Raises where none can."""
        services, usage, metrics = await asyncio.wrap_future(self._deployer.do(self._start_services))
        rollouts = await asyncio.wrap_future(self._deployer.do(self._start_rollouts))
        self._rollouts = rollouts
        metrics.append(rollout_metrics(rollouts, self.deployments))
        front.add_faces(services, usage, metrics, rollouts, self._indexes)
        if self.settings.console:
            self._console = console_for(front.app, self.deployments, self.settings, self._keys, services)
            self._console.start()
        loads = [self._first_load(name, front) for name in self.settings.models]
        errors = [each for each in await asyncio.gather(*loads) if each is not None]
        if len(errors) == len(self.settings.models):
            raise errors[0]
        if owns_process:
            gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
            gc.collect()
            gc.freeze()  # what is there now stays: looking through it again and again would hold up requests
        self._service.is_started = True
        rollouts.start()
        if self._fronts is not None:
            await asyncio.to_thread(self._fronts.group.settle, _FRONTS_S)
            self._fronts.group.check()

    async def _first_load(self, name: str, front: Front) -> Exception | None:
        try:
            await asyncio.wrap_future(self._deployer.load(name))
        except Exception as error:  # a model's own code may raise anything
            if len(self.settings.models) > 1:
                self._note(f"{name} failed to load: {error}")
            return error
        front.begin()
        return None

    def _take_signals(self) -> None:
        def signalled() -> None:
            """The first asks, the second insists."""
            (self._hurry if self._stop.is_set() else self._stop).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signalled)
        if self._reread is not None:
            changes = FileChanges(
                self.settings, self.deployments, lambda: self._rollouts, self._deployer.load, self._note
            )
            again = partial(self._deployer.do, partial(changes.apply, self._reread), "the configuration file")
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again)

    # In the deployer's threads

    def _start_services(self) -> tuple[ServerServices, Ledger | NoUsage, list[MoreMetrics]]:
        """Jobs, batches, schedules, webhooks and the ledger, with what they count."""
        models, settings = self.deployments, self.settings
        services = self._services = services_for(models, settings, self._keys, self._note)
        self._usage, tenant_metrics = ledger_for(models, settings, self._keys, services)
        self._usage.start()  # before the jobs: it knows what was spent today
        services.start()
        if settings.console:
            compile_console()
        scaling = scaling_metrics(models, self._scalers, services.backlog)
        return services, self._usage, [scaling, tenant_metrics, service_metrics(services), self._precomputed.metrics]

    def _start_rollouts(self) -> Rollouts | NoJobs:
        """Who tries new versions; deployments begin with what an earlier server has promoted."""
        assert self._services is not None  # noqa: S101 - they come before
        assert self._loop is not None  # noqa: S101 - it runs
        found = rollouts_for(self._services, self.deployments, self.settings, self._deployer, self._loop)
        if not isinstance(found, NoJobs):
            remember_versions(found, self.deployments, self.settings, self._note)
        return found

    def _opened(self, name: str, model: str | None, tell: Callable[[str], None], cancelled: Future[None]) -> LiveModel:
        return live_model(name, self.settings, tell, cancelled, apart=self._fronts is not None, model=model)

    def _reloads(self, name: str) -> None:
        """An alias is looked at anew."""
        deployment, ref = self.deployments.all[name], parse_ref(self.settings.models[name].model)
        if deployment.serving is not None and ref is not None and ref.alias is not None:
            deployment.word = None
        if isinstance(self._rollouts, Rollouts):
            self._rollouts.interrupt(name)

    def _arrived(self, deployment: Deployment) -> None:
        assert self._services is not None  # noqa: S101 - they are there before any deployment is loaded
        services, name = self._services, deployment.name
        deployment.adapters = tuple(self.settings.models[name].adapters)
        self._uses.begin(name, deployment.info)
        self._indexes.follow(name, self.settings.models[name].index)
        deployment.may_skip_device = self._precomputed.follow(name, self.settings.models[name])
        for scaler in scalers_for({name: deployment}, self.settings, services.backlog, self._note).values():
            self._scalers[name] = scaler
            scaler.scored = partial(self._services.scored, name)
            scaler.start(self.settings.models[name].scale.every_s)
        if not isinstance(services.jobs, NoJobs):
            services.jobs.look_again()
        if self._fronts is not None:
            self._fronts.group.sync()

    def _parting(self, deployment: Deployment, backend: LiveModel, grace_s: float) -> None:
        if self._fronts is not None:
            self._fronts.group.let_go(backend, grace_s)
        self._uses.end(deployment.name, backend.info)

    def _leaving(self, deployment: Deployment, _backend: LiveModel) -> None:
        if (scaler := self._scalers.pop(deployment.name, None)) is not None:
            scaler.close()
        assert self._services is not None  # noqa: S101 - they are there before any deployment is loaded
        why = deployment.why_not or f"{deployment.name} was reloaded"
        if not self._services.let_go(deployment.name, why, self.settings.grace_s):
            raise Broken(f"a job or a stream still uses {deployment.name} after {self.settings.grace}")

    def _close_all(self, left_s: float) -> bool:
        until_s = time.monotonic() + left_s
        for each in self._sockets:
            each.close()
        if self._fronts is not None:
            self._fronts.close()
        if isinstance(self._rollouts, Rollouts):
            self._rollouts.close()
        ended = self._deployer.close(max(_NOW_S, left_s))
        for scaler in [*self._scalers.values()]:
            scaler.close()
        self._uses.close()
        self._indexes.close()
        self._precomputed.close()
        ended &= self._services is None or self._services.close(left_s)
        if self._usage is not None:
            self._usage.close()
        backends = [serving.backend for each in self.deployments.all.values() for serving in each.servings]
        return left_s > 0 and close_models(backends, max(_CLOSED_S, until_s - time.monotonic())) and ended


def _check_guarded(settings: ServeSettings) -> None:
    """A script that is imported again by the processes that it starts would start a server in each of them."""
    starts = (settings.fronts or 1) > 1 or any(each.first_replicas > 1 for each in settings.models.values())
    if starts and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise Broken(
            'a server with `fronts` or `replicas` starts processes: create it inside `if __name__ == "__main__":`'
        )


def _settings_for(model: str, name: str | None, options: dict[str, Any]) -> ServeSettings:
    """Options of the server and of its model, which have no names in common."""
    of_server = {key: value for key, value in options.items() if key in ServeSettings.__struct_fields__}
    of_model = {key: value for key, value in options.items() if key not in of_server}
    return make_settings({**of_server, "models": {name or name_of(model): {"model": model, **of_model}}})
