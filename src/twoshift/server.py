"""A server: deployments, the doors in front of them, and the services beside them, put together in one place."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from twoshift.deployment_resources import DeploymentResources
from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.rollout_services import FileChanges, remember_versions, rollout_metrics, rollouts_for
from twoshift.serve.deployer import Deployer, Progress
from twoshift.serve.deployments import Deployment, Deployments
from twoshift.serve.front import Front
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.http.usage import NoUsage
from twoshift.serve.ledger import Ledger
from twoshift.serve.model_settings import check_names, name_of
from twoshift.serve.request_accounting import log_accesses
from twoshift.serve.rollouts import Rollouts
from twoshift.serve.service import Service, close_models
from twoshift.serve.settings import ServeSettings, make_settings
from twoshift.serve.tracing import Traces, closed_within
from twoshift.server_ports import ServerPorts
from twoshift.server_services import (
    ServerServices,
    compile_console,
    console_for,
    ledger_for,
    service_metrics,
    services_for,
)
from twoshift.wiring.model_loading import check_named

if TYPE_CHECKING:
    from types import TracebackType

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
        self._service = Service(self.deployments)
        self._ports = ServerPorts(self.settings, self._service)
        self._resources = DeploymentResources(self.deployments, self.settings, self._ports, note)
        self._service.precomputed = self._resources.precomputed.of
        progress = progress or (lambda: contextlib.nullcontext(note))
        self._deployer = Deployer(self._service, self._resources.hooks(), settings.grace_s, progress)
        self._service.repository = self._deployer
        self._usage: Ledger | NoUsage | None = None
        self._console: Console | None = None
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
        return 0 if self._ports.fronts is None else self._ports.fronts.group.size

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
        _check_needs(self.settings)
        log_accesses(self.settings)
        self.address = self._ports.bind(owns_process)
        for name, each in self.settings.models.items():
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
        front = self._ports.front()
        watchdog = asyncio.ensure_future(service.watch())
        stopped = asyncio.ensure_future(self._stop.wait())
        begun = asyncio.ensure_future(self._begin(front, owns_process))
        if owns_process:
            self._take_signals()
        self._note(f"Listening at {self.address}; loading {', '.join(settings.models)}")
        try:
            self.grpc_address = await self._ports.open(front)
            await asyncio.wait((begun, stopped), return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                begun.result()
                ready()
            await stopped
        except BaseException:
            await front.drain(_NOW_S, self._hurry)
            raise
        until_s = time.monotonic() + settings.grace_s
        in_peace = await self._drain(front, until_s)
        watchdog.cancel()
        begun.cancel()
        if service.traces is not None:
            await closed_within(service.traces, min(_TRACES_S, max(0.0, until_s - time.monotonic())))
        return max(_ANSWERED_S, until_s - time.monotonic()) if in_peace else 0.0

    async def _drain(self, front: Front, until_s: float) -> bool:
        """Answer what was admitted; False where some of it has no answer by then."""
        _logger.warning(
            "stopping: waiting up to %s for admitted requests; send a second signal to stop now", self.settings.grace
        )
        self._service.drain()
        if self._console is not None:
            self._console.close()
        in_peace, fronts = True, self._ports.fronts
        if fronts is not None:  # first: they hand connections over
            in_peace = await fronts.group.drain(self.settings.grace_s, self._hurry)
        return await front.drain(max(0.0, until_s - time.monotonic()), self._hurry) and in_peace

    async def _begin(self, front: Front, owns_process: bool) -> None:
        """Load what the settings name; requests are taken once the first can answer. Raises where none can."""
        services, usage, metrics = await asyncio.wrap_future(self._deployer.do(self._start_services))
        rollouts = await asyncio.wrap_future(self._deployer.do(lambda: self._start_rollouts(services)))
        self._resources.rollouts = rollouts
        metrics.append(rollout_metrics(rollouts, self.deployments))
        front.add_faces(services, usage, metrics, rollouts, self._resources.indexes)
        if self.settings.console:
            self._console = console_for(front.app, self.deployments, self.settings, self._ports.keys, services)
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
        if (fronts := self._ports.fronts) is not None:
            await asyncio.to_thread(fronts.group.settle, _FRONTS_S)
            fronts.group.check()

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
                self.settings, self.deployments, lambda: self._resources.rollouts, self._deployer.load, self._note
            )
            again = partial(self._deployer.do, partial(changes.apply, self._reread), "the configuration file")
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again)

    # In the deployer's threads

    def _start_services(self) -> tuple[ServerServices, Ledger | NoUsage, list[MoreMetrics]]:
        """Jobs, batches, schedules, webhooks and the ledger, with what they count."""
        models, settings, keys, resources = self.deployments, self.settings, self._ports.keys, self._resources
        services = resources.services = services_for(models, settings, keys, self._note)
        self._usage, tenant_metrics = ledger_for(models, settings, keys, services)
        self._usage.start()  # before the jobs: it knows what was spent today
        services.start()
        if settings.console:
            compile_console()
        scaling = resources.scaling_metrics(services)
        metrics = [scaling, tenant_metrics, service_metrics(services), resources.precomputed.metrics]
        return services, self._usage, metrics

    def _start_rollouts(self, services: ServerServices) -> Rollouts | NoJobs:
        """Who tries new versions; deployments begin with what an earlier server has promoted."""
        assert self._loop is not None  # noqa: S101 - it runs
        found = rollouts_for(services, self.deployments, self.settings, self._deployer, self._loop)
        if not isinstance(found, NoJobs):
            remember_versions(found, self.deployments, self.settings, self._note)
        return found

    def _close_all(self, left_s: float) -> bool:
        until_s = time.monotonic() + left_s
        self._ports.close()
        if isinstance(rollouts := self._resources.rollouts, Rollouts):
            rollouts.close()
        ended = self._deployer.close(max(_NOW_S, left_s))
        self._resources.close()
        services = self._resources.services
        ended &= services is None or services.close(left_s)
        if self._usage is not None:
            self._usage.close()
        backends = [serving.backend for each in self.deployments.all.values() for serving in each.servings]
        return left_s > 0 and close_models(backends, max(_CLOSED_S, until_s - time.monotonic())) and ended


def _check_needs(settings: ServeSettings) -> None:
    """Raises InvalidInput where a package is missing, or a model that is not there is named."""
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


def _check_guarded(settings: ServeSettings) -> None:
    """A script that is imported again by the processes that it starts would start a server in each of them."""
    starts = (settings.fronts or 1) > 1 or any(each.first_replicas > 1 for each in settings.models.values())
    if starts and getattr(multiprocessing.current_process(), "_inheriting", False):
        why = "a server with `fronts` or `replicas` starts processes"
        raise Broken(f'{why}: create the server inside `if __name__ == "__main__":`')


def _settings_for(model: str, name: str | None, options: dict[str, Any]) -> ServeSettings:
    """Options of the server and of its model, which have no names in common."""
    of_server = {key: value for key, value in options.items() if key in ServeSettings.__struct_fields__}
    of_model = {key: value for key, value in options.items() if key not in of_server}
    return make_settings({**of_server, "models": {name or name_of(model): {"model": model, **of_model}}})
