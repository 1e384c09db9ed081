"""The doors of a server: HTTP and gRPC, from their first connection to the end of the last request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from twoshift.endpoints.faults import fault_of
from twoshift.endpoints.known import told_openai
from twoshift.errors import TryLater, TwoshiftError
from twoshift.serve.batch_desk import BatchDesk, NoBatches
from twoshift.serve.connection_counts import ConnectionCounts
from twoshift.serve.exposition import MoreMetrics, ServerMetrics
from twoshift.serve.host import HostFacts
from twoshift.serve.http.app import Admitted, App
from twoshift.serve.http.batches import add_batches
from twoshift.serve.http.deployments import RolloutDesk, add_deployments
from twoshift.serve.http.files import add_files
from twoshift.serve.http.gate import Gate
from twoshift.serve.http.generation import add_generation
from twoshift.serve.http.handover import HandoverListener
from twoshift.serve.http.job_looks import JobLookDesk, add_job_looks
from twoshift.serve.http.jobs import JobDesk, NoJobs, add_jobs
from twoshift.serve.http.kserve import add_kserve
from twoshift.serve.http.lookups import add_lookup
from twoshift.serve.http.message_batches import add_message_batches
from twoshift.serve.http.messages import Request
from twoshift.serve.http.oip import add_oip, add_oip_health, told_oip
from twoshift.serve.http.openai import add_openai
from twoshift.serve.http.operations import add_health, add_operations
from twoshift.serve.http.peers import HeadDecisions, HttpLimits
from twoshift.serve.http.planning import add_planning
from twoshift.serve.http.predictions import PredictionDesk, add_predictions
from twoshift.serve.http.reranking import add_reranking
from twoshift.serve.http.schedules import DeliveryDesk, ScheduleDesk, add_schedules
from twoshift.serve.http.scoring import add_scoring
from twoshift.serve.http.searching import add_search
from twoshift.serve.http.server import HttpServer, SharedPort
from twoshift.serve.http.streams import add_streams
from twoshift.serve.http.tokenization import add_tokenization
from twoshift.serve.http.usage import UsageDesk, add_usage
from twoshift.serve.indexes import SearchIndexes
from twoshift.serve.keys import Caller, Keys
from twoshift.serve.ledger import Prices
from twoshift.serve.listening import check_address, shown_address
from twoshift.serve.llm.exposition import llm_metrics
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings
from twoshift.serve.tls import TlsFiles

if TYPE_CHECKING:
    from twoshift.serve.grpc.server import GrpcServer

__all__ = ["Front", "FrontServices", "add_faces", "add_live_faces", "grpc_server", "host_gauges", "http_limits"]

_RETRY_S = 2.0


class AllOfJobs(JobDesk, JobLookDesk, Protocol):
    """Who runs jobs, and tells of them."""


class FrontServices(Protocol):
    """Who does what is not a live request."""

    @property
    def jobs(self) -> AllOfJobs | NoJobs: ...

    @property
    def streams(self) -> JobDesk | NoJobs: ...

    @property
    def batches(self) -> BatchDesk | NoBatches: ...

    @property
    def schedules(self) -> ScheduleDesk | NoJobs: ...

    @property
    def notifier(self) -> DeliveryDesk | NoJobs: ...

    @property
    def predictions(self) -> PredictionDesk: ...


class Front:
    """Of one loop. It says from its start how the server is; requests are taken once something can answer them."""

    def __init__(
        self,
        service: Service,
        settings: ServeSettings,
        keys: Keys,
        counts: ConnectionCounts | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """`counts`: of connections, with those of front processes."""
        self._service, self._settings = service, settings
        service.is_opening = True
        self._app = _FrontApp(keys, service)
        self._app.scheme = "http" if tls is None else "https"
        app, limits = self._app, http_limits(settings)
        decisions = HeadDecisions(app.admit, app.streams, Gate(app, service.host, service))
        self._http = HttpServer(app.handle, app.refused, limits, decisions, SharedPort(counts=counts), tls)
        self._grpc = None if settings.grpc_port is None else grpc_server(service, settings, keys, tls)
        self._taking: HandoverListener | None = None

    @property
    def app(self) -> App:
        """Its paths, for who has more of them."""
        return self._app

    async def open(self, sockets: Sequence[socket.socket]) -> str | None:
        """Listen; the address of gRPC, where there is one."""
        await self._http.start_on(sockets)
        if self._grpc is None:
            return None
        host, port = self._settings.host, self._settings.grpc_port or 0
        check_address(host, port, "grpc_port")
        bound = self._grpc.bind(shown_address(host, port))
        await self._grpc.start()
        return shown_address(host, bound)

    async def open_behind(self, handover: Path, grpc_path: Path) -> None:
        """Take what front processes do not answer: HTTP's connections at the one path, gRPC's calls at the other."""
        await self._http.start_on(())
        self._taking = HandoverListener(handover, self._http.take_over)
        if self._grpc is not None:
            self._grpc.bind(f"unix:{grpc_path}")
            await self._grpc.start()

    def add_faces(
        self,
        services: FrontServices,
        usage: UsageDesk,
        metrics: Sequence[MoreMetrics],
        rollouts: RolloutDesk | NoJobs,
        indexes: SearchIndexes,
    ) -> None:
        """Everything that the server can be asked, from now on."""
        add_faces(self._app, self._http, self._service, services, usage, metrics)
        prices = Prices(self._settings.price_of, self._settings.batch_price_share)
        add_job_looks(self._app, self._service, services.jobs, prices)
        add_deployments(self._app, self._service.models, rollouts)
        add_search(self._app, self._service, indexes)

    def begin(self) -> None:
        """Something can answer: requests are taken."""
        self._service.is_opening = False

    async def drain(self, grace_s: float, hurry: asyncio.Event) -> bool:
        """Take nothing new, and answer what was admitted; False where time ran out."""
        if self._taking is not None:
            self._taking.close()
        doors = [each for each in (self._http, self._grpc) if each is not None]
        return all(await asyncio.gather(*(each.drain(grace_s, hurry) for each in doors)))


class _FrontApp(App):
    """While nothing is ready yet, whoever asks for more than how things are is told to come back."""

    def __init__(self, keys: Keys, service: Service) -> None:
        super().__init__(told_openai, keys)
        self._service = service
        add_health(self, service.unready, service.warnings)
        add_oip_health(self, service.unready)
        self.tell_below("/v2", told_oip)

    def admit(self, request: Request, known: Caller | None = None) -> Admitted:
        admitted = super().admit(request, known)
        route = admitted.route
        if self._service.is_opening and (route is None or not route.is_probe) and request.method not in ("GET", "HEAD"):
            admitted.fault = fault_of(self._not_yet())
        return admitted

    def _unknown(self, path: str) -> TwoshiftError:
        return self._not_yet() if self._service.is_opening else super()._unknown(path)

    def _not_yet(self) -> TryLater:
        return TryLater(self._service.unready() or "the server is loading", _RETRY_S)


def add_faces(
    app: App,
    server: HttpServer,
    service: Service,
    services: FrontServices,
    usage: UsageDesk,
    metrics: Sequence[MoreMetrics],
) -> None:
    """Everything that a server can be asked over HTTP."""
    add_live_faces(app, service)
    add_jobs(app, services.jobs)
    add_streams(app, services.streams)
    add_files(app, services.batches.files)
    add_batches(app, services.batches)
    add_message_batches(app, service, services.batches)
    add_schedules(app, services.schedules, services.notifier)
    add_usage(app, usage)
    add_planning(app, service.models)
    add_predictions(app, services.predictions)
    gauges = host_gauges(server, service)
    shown = ServerMetrics(service.models, gauges, [*metrics, lambda: llm_metrics(service.models)])
    add_operations(app, service.unready, shown, service.warnings, service.refresh)


def host_gauges(server: HttpServer, service: Service) -> dict[str, tuple[str, Callable[[], float]]]:
    """What the processes that accept requests have to do."""

    def hosts() -> list[HostFacts]:
        return [service.host.facts(server.connections), *(() if service.fronts is None else service.fronts.hosts())]

    return {
        "fronts": ("Processes that accept live requests.", lambda: max(1, len(hosts()) - 1)),
        "http_connections": ("Open connections.", lambda: sum(each.connections for each in hosts())),
        "host_requests": (
            "Admitted requests that have not been answered yet.",
            lambda: sum(each.inside for each in hosts()),
        ),
        "host_ahead_seconds": (
            "CPU time that admitted requests still need, in the busiest front-end process.",
            lambda: max(each.ahead_s for each in hosts()),
        ),
        "host_request_seconds": (
            "CPU time per request, in the slowest front-end process.",
            lambda: max(each.request_s for each in hosts()),
        ),
        "host_refusal_seconds": (
            "CPU time per request that is refused before it is read, in the slowest front-end process.",
            lambda: max(each.refusal_s for each in hosts()),
        ),
    }


def add_live_faces(app: App, service: Service) -> None:
    """Those that models answer."""
    add_kserve(app, service)
    add_openai(app, service)
    add_reranking(app, service)
    add_scoring(app, service)
    add_lookup(app, service)
    add_generation(app, service)
    add_tokenization(app, service)
    add_oip(app, service)


def http_limits(settings: ServeSettings) -> HttpLimits:
    """What a client may cost a process of the server."""
    return HttpLimits(
        body_bytes=int(settings.max_body_mib * (1 << 20)),
        connections=settings.max_connections,
        address_connections=settings.max_connections_per_address,
        proxies=frozenset(settings.proxies),
    )


def grpc_server(
    service: Service, settings: ServeSettings, keys: Keys, tls: TlsFiles | None, forward_to: Path | None = None
) -> GrpcServer:
    """`forward_to`: of a front process, where calls go that it does not answer."""
    from twoshift.serve.grpc.forwarding import Forwarding  # their packages are an extra
    from twoshift.serve.grpc.server import GrpcServer

    forwarding = None if forward_to is None else Forwarding(forward_to)
    most_bytes = int(settings.max_body_mib * (1 << 20))
    return GrpcServer(service, keys, most_bytes, settings.max_connections, forwarding, tls)
