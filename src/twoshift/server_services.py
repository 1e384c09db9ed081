"""Who does on a server what is no live request: jobs, streams, batches, schedules, webhooks, the ledger."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from twoshift.config import home
from twoshift.errors import NotFound, TryLater, TwoshiftError
from twoshift.extras import missing_from, needed, not_installed
from twoshift.prediction_ports import Prediction
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.prediction_log import NoPredictions, PredictionLog
from twoshift.wiring.blob_stores import blobs_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from twoshift.batch.job_host import JobHost
    from twoshift.batch.job_seats import LiveFleet
    from twoshift.batch.requests.batch_host import BatchHost
    from twoshift.blobs.roots import Roots
    from twoshift.policy.scale_scores import ScaleScore
    from twoshift.ports import Blobs
    from twoshift.serve.batch_desk import NoBatches
    from twoshift.serve.deployments import Deployments
    from twoshift.serve.exposition import MoreMetrics
    from twoshift.serve.http.app import App
    from twoshift.serve.http.usage import NoUsage
    from twoshift.serve.keys import Caller, Keys
    from twoshift.serve.ledger import Ledger, Prices
    from twoshift.serve.settings import ServeSettings
    from twoshift.store.claim import SqlClaim
    from twoshift.store.database import Database
    from twoshift.streams.stream_host import StreamHost
    from twoshift.triggers.notifier import Notifier
    from twoshift.triggers.scheduler import Scheduler
    from twoshift.types import RunState
    from twoshift.ui.console import Console

__all__ = [
    "ServerServices",
    "compile_console",
    "confined_blobs",
    "console_for",
    "ledger_for",
    "marker_in",
    "no_services",
    "service_metrics",
    "services_for",
]

_UNUSABLE = TryLater("the server cannot use its database; the cause is in the server's log", 60.0)


@dataclass(frozen=True, slots=True)
class ServerServices:
    """Who runs jobs and batches, fires them and tells of their end."""

    jobs: JobHost | NoJobs
    streams: StreamHost | NoJobs
    batches: BatchHost | NoBatches
    schedules: Scheduler | NoJobs
    notifier: Notifier | NoJobs
    database: Database | None = None  # of all of these
    predictions: PredictionLog | NoPredictions = field(default_factory=lambda: NoPredictions("there is no database"))

    def start(self) -> None:
        """Go on with what an earlier server has left; raises TryLater."""
        for each in (self.predictions, self.jobs, self.streams, self.batches, self.schedules, self.notifier):
            each.start()

    def close(self, grace_s: float) -> bool:
        """End all; False where a job has not ended in time."""
        until_s = time.monotonic() + grace_s
        self.schedules.close()
        self.notifier.close()
        ended = self.streams.close(grace_s)
        ended = self.batches.close(max(0.0, until_s - time.monotonic())) and ended
        ended = self.jobs.close(max(0.0, until_s - time.monotonic())) and ended
        self.predictions.close()
        return ended

    def scored(self, model: str, score: ScaleScore) -> None:
        """What came of a scaling decision."""
        self.predictions.add(Prediction("scaling", model, *score, time.time()))

    def backlog(self, model: str) -> list[tuple[int, float, int]]:
        """Of jobs and streams over a model: rows left, seconds left, and the replicas that each asks for."""
        hosts = [each for each in (self.jobs, self.streams) if not isinstance(each, NoJobs)]
        return [each for host in hosts for each in host.backlog(model)]

    def let_go(self, model: str, why: str, timeout_s: float) -> bool:
        """Jobs and streams leave a model that goes; False where one has not stopped in time."""
        until_s, stopped = time.monotonic() + timeout_s, True
        if not isinstance(self.jobs, NoJobs):
            stopped = self.jobs.let_go(model, why, timeout_s)
        if not isinstance(self.streams, NoJobs):
            stopped = self.streams.let_go(model, max(0.0, until_s - time.monotonic())) and stopped
        return stopped


def services_for(
    models: Deployments, settings: ServeSettings, keys: Keys, note: Callable[[str], None]
) -> ServerServices:
    """For the models that are served, not started; where there can be none, those who say why."""
    held = _held_database(settings, note)
    if not isinstance(held, tuple):
        return no_services(held)
    from twoshift.store.claimed import ClaimedDatabase
    from twoshift.store.notices import SqlNotices
    from twoshift.store.predictions import SqlPredictions
    from twoshift.store.schedules import SqlSchedules
    from twoshift.triggers.notifier import Notifier
    from twoshift.triggers.scheduler import Scheduler
    from twoshift.triggers.sending import Sender
    from twoshift.wiring.live_fleets import LiveFleets

    claimed = ClaimedDatabase(*held)
    sender = Sender(settings.allow_private_webhooks)
    if settings.webhooks:
        sender.load()
    notifier = Notifier(SqlNotices(claimed), settings.webhooks, sender, lambda: jobs.check_ours(), _job_log(held))
    predictions = PredictionLog(SqlPredictions(held[0]))
    fleet_of = LiveFleets(models, settings).of
    jobs = _job_host(fleet_of, settings, keys, held, (notifier, predictions))

    def marker_at(location: str, owner: str) -> str | None:
        return marker_in(jobs.allowance_of(owner).blobs_for(location), location)

    schedules = Scheduler(SqlSchedules(claimed), jobs, marker_at, notifier.notify)
    streams = _stream_host(fleet_of, settings, held, jobs)
    batches = _batch_host(models, settings, held, jobs)
    return ServerServices(jobs, streams, batches, schedules, notifier, held[0], predictions)


def service_metrics(services: ServerServices) -> MoreMetrics:
    """Streams, batches by status, jobs by outlook, and what became of the runs of schedules."""
    from twoshift.policy.deadline import Verdict
    from twoshift.serve.batch_desk import NoBatches
    from twoshift.types import BatchStatus, RunState

    def families() -> Iterator[Any]:
        is_known = isinstance(services.jobs, NoJobs) or services.jobs.is_ours  # another server tells of its own
        counts = {} if isinstance(services.batches, NoBatches) else services.batches.counts
        by_status = [(str(status), counts.get(str(status), (0, 0.0))[0]) for status in BatchStatus]
        yield "gauge", "batches", "Stored batches, by status.", ("status",), by_status if is_known else []
        waiting = [since_s for status, (_, since_s) in counts.items() if not BatchStatus(status).is_over]
        oldest = [(max(0.0, time.time() - min(waiting)) if waiting else 0.0,)] if is_known else []
        yield "gauge", "oldest_batch_seconds", "Age of the oldest unfinished batch.", (), oldest
        outlooks = {} if isinstance(services.jobs, NoJobs) or not is_known else services.jobs.outlooks()
        models = sorted({model for model, _ in outlooks})
        jobs = [(model, str(each), outlooks[model, str(each)]) for model in models for each in Verdict]
        yield (
            "gauge",
            "running_jobs",
            "Running jobs, by outlook: whether the job is expected to end within its window.",
            ("model", "outlook"),
            jobs,
        )
        overdue = [] if isinstance(services.jobs, NoJobs) or not is_known else [(services.jobs.overdue,)]
        yield "gauge", "overdue_jobs", "Waiting or paused jobs whose window has ended.", (), overdue
        settled: Mapping[RunState, int] = {} if isinstance(services.schedules, NoJobs) else services.schedules.settled
        runs = [(str(state), settled.get(state, 0)) for state in RunState if state is not RunState.WAITING]
        yield "counter", "schedule_runs", "Runs of schedules, by outcome.", ("state",), runs
        if not isinstance(services.streams, NoJobs):
            from twoshift.streams.metrics import stream_metrics

            yield from stream_metrics(services.streams.snapshots(), ("stream", "model"))

    return families


def no_services(why: str | TwoshiftError) -> ServerServices:
    """Those of a server that runs no jobs; whoever asks for one is told why."""
    from twoshift.serve.batch_desk import NoBatches

    none = NoJobs(why)
    return ServerServices(none, none, NoBatches(why), none, none, predictions=NoPredictions(why))


def _held_database(
    settings: ServeSettings, note: Callable[[str], None]
) -> tuple[Database, SqlClaim] | str | TwoshiftError:
    """The database of jobs and the claim on it, which another server may have for now; or why there is none."""
    if missing_from("fleet"):
        if settings.database is None:
            return _needs_packages()
        raise not_installed("fleet", "serve --database", "twoshift")
    from twoshift.store.claim import SqlClaim
    from twoshift.store.database import Database

    try:
        database = Database(_database_url(settings))
        claim = SqlClaim(database)
        is_ours = claim.take()
    except (TwoshiftError, OSError) as why:
        if settings.database is not None:
            raise
        note(
            f"Jobs, batches, schedules and usage are disabled: {why}. Live requests are "
            f"served{_without_quotas(settings)}."
        )
        return _UNUSABLE
    if not is_ours:
        if settings.database is None:  # a server of something else, as it may be
            database.close()
            note(f"Jobs are disabled: another server uses {database.shown}. Set --database to another database.")
            return (
                "another server uses the same database: send jobs to that server, or start this server with "
                "another --database"
            )
        note(f"Jobs wait, because {claim.told}. This server takes the jobs over when that server ends.")
    return database, claim


def _needs_packages() -> str:
    """By their names: clients are told, who need not know where this is installed."""
    return f"jobs need packages that are not installed: pip install {' '.join(missing_from('fleet'))}"


def _job_host(
    fleet_of: Callable[[str], LiveFleet],
    settings: ServeSettings,
    keys: Keys,
    held: tuple[Database, SqlClaim],
    told: tuple[Notifier, PredictionLog],  # of ends, and of what came of predictions
) -> JobHost:
    from twoshift.batch.job_host import JobHost
    from twoshift.fleet.tenancy import allowances, own_files
    from twoshift.store.jobs import SqlJobs

    database, claim = held
    ours = own_files(home(), database.file, _files_root(settings))
    allowed = allowances(settings, keys.tenants, ours, blobs_for, confined_blobs)
    jobs = SqlJobs(database, claim=claim)
    return JobHost(jobs, fleet_of, allowed, claim, told[0].check, told[1].add)


def _stream_host(
    fleet_of: Callable[[str], LiveFleet], settings: ServeSettings, held: tuple[Database, SqlClaim], jobs: JobHost
) -> StreamHost:
    from twoshift.serve.ledger import MICRO
    from twoshift.store.jobs import SqlJobs
    from twoshift.streams.stream_host import StreamHost
    from twoshift.types import JobKindName

    store = SqlJobs(held[0], claim=held[1], kinds=(JobKindName.STREAM,))
    usd = partial(_prices(settings).usd, MICRO)
    return StreamHost(store, fleet_of, jobs.allowance_of, jobs.check_ours, usd)


def _prices(settings: ServeSettings) -> Prices:
    from twoshift.serve.ledger import Prices

    return Prices(settings.price_of, settings.batch_price_share)


def _batch_host(
    models: Deployments,
    settings: ServeSettings,
    held: tuple[Database, SqlClaim],
    jobs: JobHost,
) -> BatchHost:
    from twoshift.batch.requests.batch_host import BatchHost
    from twoshift.batch.requests.files import FileLimits, StoredFiles
    from twoshift.store.batches import SqlBatches
    from twoshift.store.files import SqlFiles

    database, claim = held
    of_files = settings.files
    limits = FileLimits(int(of_files.max_mb * 1e6), of_files.max_requests, of_files.retention_s)
    files = StoredFiles(SqlFiles(database, claim=claim), _files_root(settings), blobs_for, limits)

    return BatchHost(SqlBatches(database, claim=claim), files, jobs, models.names)


def _files_root(settings: ServeSettings) -> str:
    return settings.files.location or str(home() / "files")


def confined_blobs(roots: Roots, location: str) -> Blobs:
    """What reads and writes there, below the roots; raises InvalidInput for anything else."""
    from twoshift.blobs.confined import ConfinedBlobs

    inner = blobs_for(location)
    roots.check(location)
    return ConfinedBlobs(inner, roots)


def _job_log(held: tuple[Database, SqlClaim]) -> Callable[[str, str], None]:
    """A line in a job's log; nothing where it is about something else."""
    from twoshift.store.jobs import SqlJobs
    from twoshift.types import JobKindName

    jobs = SqlJobs(held[0], claim=held[1])

    def log(subject: str, text: str) -> None:
        with suppress(NotFound):
            if jobs.get(subject).kind is JobKindName.TABLE:  # a batch has no log
                jobs.note(subject, text)

    return log


def marker_in(blobs: Blobs, location: str) -> str | None:
    """What is another one whenever the file there was written anew."""
    found = blobs.stat(location)
    return None if found is None else f"{found.identity}, {found.written}"


def compile_console() -> None:
    """In a thread, before it is asked for."""
    needed("jinja2", "serve", "console", "twoshift")
    from twoshift.ui.rendering import compile_pages

    compile_pages()


def console_for(
    app: App, models: Deployments, settings: ServeSettings, keys: Keys, services: ServerServices
) -> Console:
    """The pages of a server, which keep a day of figures where there is a database."""
    from twoshift.ui.console import Console

    if services.database is None:
        return Console(app, models, settings, keys)
    from twoshift.store.minutes import SqlMinutes

    minutes = SqlMinutes(services.database, f"{settings.host}:{settings.port}")
    return Console(app, models, settings, keys, minutes, partial(_input_files, services, settings))


async def _input_files(services: ServerServices, settings: ServeSettings, caller: Caller) -> Sequence[str]:
    """That a job of somebody could read, of the folders that it has."""
    from twoshift.serve.keys import ANYONE

    owner = "" if caller is ANYONE else caller.tenant
    tenant = settings.tenants.get(owner)
    roots = settings.job_roots if tenant is None or tenant.job_roots is None else tenant.job_roots
    if isinstance(services.jobs, NoJobs) or not roots:
        return ()
    return await asyncio.to_thread(services.jobs.looks.files_below, roots, owner)


def ledger_for(
    models: Deployments, settings: ServeSettings, keys: Keys, services: ServerServices
) -> tuple[Ledger | NoUsage, MoreMetrics]:
    """Who counts what tenants have had of the devices, not started; and the metrics of tenants."""
    from twoshift.fleet.tenancy import counted
    from twoshift.serve.http.usage import NoUsage
    from twoshift.serve.ledger import BATCH, MICRO, Ledger
    from twoshift.serve.tenant_metrics import tenant_metrics

    jobs, hosts = services.jobs, {BATCH: services.jobs, MICRO: services.streams}
    count = partial(counted, models, {lane: each.used for lane, each in hosts.items() if not isinstance(each, NoJobs)})
    shown = tenant_metrics(keys.tenants, count)
    if missing_from("fleet"):
        for name, each in settings.tenants.items():
            if each.device_seconds_per_day is not None:
                limit = f"{each.device_seconds_per_day:g}"
                raise not_installed("fleet", limit, f"tenants.{name}.device_seconds_per_day")
        return NoUsage(_needs_packages()), shown
    from twoshift.store.database import Database
    from twoshift.store.usage import SqlUsage

    if isinstance(jobs, NoJobs) and jobs.why is _UNUSABLE:
        return NoUsage(_UNUSABLE), shown
    store = SqlUsage(Database(_database_url(settings)))
    return Ledger(store, count, keys.tenants, _prices(settings)), shown


def _without_quotas(settings: ServeSettings) -> str:
    """What nobody can count without a database."""
    limited = sorted(name for name, each in settings.tenants.items() if each.device_seconds_per_day is not None)
    return f", and device_seconds_per_day is not enforced (tenants {', '.join(limited)})" if limited else ""


def _database_url(settings: ServeSettings) -> str:
    return settings.database or f"sqlite:///{home() / 'fleet.db'}"
