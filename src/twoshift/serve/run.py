"""A service on its ports, from its start to the end of its last request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from twoshift.endpoints.known import told_openai
from twoshift.extras import needed
from twoshift.serve.batch_desk import BatchDesk, NoBatches
from twoshift.serve.exposition import MoreMetrics, ServerMetrics
from twoshift.serve.http.app import App
from twoshift.serve.http.batches import add_batches
from twoshift.serve.http.files import add_files
from twoshift.serve.http.gate import Gate
from twoshift.serve.http.generation import add_generation
from twoshift.serve.http.jobs import JobDesk, NoJobs, add_jobs
from twoshift.serve.http.kserve import add_kserve
from twoshift.serve.http.message_batches import add_message_batches
from twoshift.serve.http.oip import add_oip
from twoshift.serve.http.openai import add_openai
from twoshift.serve.http.operations import add_operations
from twoshift.serve.http.peers import HttpLimits
from twoshift.serve.http.reranking import add_reranking
from twoshift.serve.http.schedules import DeliveryDesk, ScheduleDesk, add_schedules
from twoshift.serve.http.server import HttpServer
from twoshift.serve.http.tokenization import add_tokenization
from twoshift.serve.http.usage import UsageDesk, add_usage
from twoshift.serve.keys import Keys
from twoshift.serve.llm.exposition import llm_metrics
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings
from twoshift.serve.starting import Starting, check_address, shown_address
from twoshift.serve.tracing import Traces

if TYPE_CHECKING:
    from twoshift.serve.grpc.server import GrpcServer

__all__ = ["ServerServices", "add_faces", "serve"]

_logger = logging.getLogger("twoshift.serve")
_TRACES_S = 5.0
_GARBAGE = 20_000  # new objects that are looked through together: at 700 it takes a twentieth of a small request
_LEAST_S = 1.0  # for the models to go, after the last reply


class ServerServices(Protocol):
    """Who does what is not a live request."""

    @property
    def jobs(self) -> JobDesk | NoJobs: ...

    @property
    def batches(self) -> BatchDesk | NoBatches: ...

    @property
    def schedules(self) -> ScheduleDesk | NoJobs: ...

    @property
    def notifier(self) -> DeliveryDesk | NoJobs: ...


def serve(
    service: Service,
    settings: ServeSettings,
    ready: Callable[[str, str | None], None],
    services: ServerServices,
    keys: Keys,
    usage: UsageDesk,
    starting: Starting,
    metrics: Sequence[MoreMetrics] = (),
) -> float:
    """Until SIGTERM or SIGINT; seconds that are left of the grace, 0 where requests were left without an answer.

    `ready` is told the address, and gRPC's where there is one; `starting` has the port until then; `metrics` are shown
    beside the server's own.
    """
    return needed("uvloop", "serve", "serve", "twoshift").run(
        _serve(service, settings, ready, services, keys, usage, starting, metrics)
    )


async def _serve(
    service: Service,
    settings: ServeSettings,
    ready: Callable[[str, str | None], None],
    services: ServerServices,
    keys: Keys,
    usage: UsageDesk,
    starting: Starting,
    metrics: Sequence[MoreMetrics],
) -> float:
    service.start()
    traces = None if settings.otlp_endpoint is None else Traces(settings.otlp_endpoint)
    for model in service.models.all.values():
        model.traces = traces
    app = App(told_openai, keys)
    gate = Gate(app, service.host, service)
    server = HttpServer(app.handle, app.refused, _limits(settings), streams=app.streams, admit=app.admit, gate=gate)
    grpc_server = None if settings.grpc_port is None else _grpc_server(service, settings, keys)
    add_faces(app, server, service, services, usage, metrics)
    stop, hurry = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, NotImplementedError):  # not in a test's thread
            asyncio.get_running_loop().add_signal_handler(number, _signalled, stop, hurry)
    grpc_address = None
    if grpc_server is not None:
        check_address(settings.host, settings.grpc_port or 0, "grpc_port")
        bound = await grpc_server.start(settings.host, settings.grpc_port or 0)
        grpc_address = shown_address(settings.host, bound)
    watchdog = asyncio.ensure_future(service.watch())
    gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
    gc.collect()
    gc.freeze()  # what is there now stays: looking through it again and again would hold up requests
    await server.start_on(starting.hand_on())
    ready(f"http://{starting.address}", grpc_address)
    await stop.wait()
    _logger.warning("stopping: admitted requests are answered within %s; a second signal stops now", settings.grace)
    until_s = time.monotonic() + settings.grace_s
    service.drain()
    servers = [each for each in (server, grpc_server) if each is not None]
    in_peace = all(await asyncio.gather(*(each.drain(settings.grace_s, hurry) for each in servers)))
    watchdog.cancel()
    if traces is not None:
        await _closed(traces, min(_TRACES_S, max(0.0, until_s - time.monotonic())))
    return max(_LEAST_S, until_s - time.monotonic()) if in_peace else 0.0


def add_faces(
    app: App,
    server: HttpServer,
    service: Service,
    services: ServerServices,
    usage: UsageDesk,
    metrics: Sequence[MoreMetrics],
) -> None:
    """Everything that a server can be asked over HTTP."""
    add_kserve(app, service)
    add_openai(app, service)
    add_reranking(app, service)
    add_generation(app, service)
    add_tokenization(app, service)
    add_oip(app, service)
    add_jobs(app, services.jobs)
    add_files(app, services.batches.files)
    add_batches(app, services.batches)
    add_message_batches(app, service, services.batches)
    add_schedules(app, services.schedules, services.notifier)
    add_usage(app, usage)
    host = service.host.policy
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        "http_connections": ("Open connections.", lambda: server.connections),
        "host_requests": ("Admitted requests that are not answered yet.", lambda: host.inside),
        "host_ahead_seconds": ("Host time that the admitted requests still need.", lambda: host.ahead_s),
        "host_request_seconds": ("Host time of a request.", lambda: host.request_s),
        "host_refusal_seconds": ("Host time of a request that is refused unread.", lambda: host.refusal.mean_s),
    }
    more = [*metrics, lambda: llm_metrics(service.models)]
    add_operations(app, service.unready, ServerMetrics(service.models, gauges, more), service.warnings)


def _limits(settings: ServeSettings) -> HttpLimits:
    return HttpLimits(
        body_bytes=int(settings.max_body_mib * (1 << 20)),
        connections=settings.max_connections,
        address_connections=settings.max_connections_per_address,
        proxies=frozenset(settings.proxies),
    )


async def _closed(traces: Traces, timeout_s: float) -> None:
    """What is left is sent, if somebody takes it in time; a thread that is not waited for does it."""
    closing = threading.Thread(target=traces.close, daemon=True)
    closing.start()
    until_s = time.monotonic() + timeout_s
    while closing.is_alive() and time.monotonic() < until_s:
        await asyncio.sleep(0.02)


def _signalled(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """The first asks, the second insists."""
    (hurry if stop.is_set() else stop).set()


def _grpc_server(service: Service, settings: ServeSettings, keys: Keys) -> GrpcServer:
    from twoshift.serve.grpc.server import GrpcServer  # its packages are an extra

    return GrpcServer(service, keys, int(settings.max_body_mib * (1 << 20)), settings.max_connections)
