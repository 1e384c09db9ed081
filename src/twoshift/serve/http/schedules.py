"""Schedules: what fires jobs by the clock or by a marker; and the webhooks' deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of, refuse_pages, submitter_of
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import limit_of, query_of
from twoshift.serve.keys import Access
from twoshift.trigger_ports import Delivery, ScheduledRun, ScheduleRecord
from twoshift.triggers.spec import ScheduleSpec

__all__ = ["DeliveryDesk", "ScheduleDesk", "add_schedules"]

_MOST_LISTED = 1000
_ANSWER_S, _LOOK_S = 8.0, 60.0  # a new schedule's marker is looked for, wherever it lies
_STATUSES = (400, 403, 404, 429, 503)
_encoder, _spec = msgspec.json.Encoder(), msgspec.json.Decoder(ScheduleSpec)


class ScheduleDesk(Protocol):
    """Who fires them. Calls take a while: they are made in threads."""

    def add(self, spec: ScheduleSpec, owner: str = "") -> ScheduleRecord: ...

    def list(self, owner: str | None = None) -> list[ScheduleRecord]: ...

    def get(self, name: str, owner: str | None = None) -> ScheduleRecord: ...

    def next_unix_s(self, schedule: ScheduleRecord) -> float | None: ...

    def pause(self, name: str, owner: str | None = None) -> ScheduleRecord: ...

    def resume(self, name: str, owner: str | None = None) -> ScheduleRecord: ...

    def remove(self, name: str, owner: str | None = None) -> ScheduleRecord: ...

    def history(self, name: str, owner: str | None = None, limit: int = 100) -> list[ScheduledRun]: ...

    def run(self, name: str, owner: str | None = None) -> ScheduledRun: ...


class DeliveryDesk(Protocol):
    """Who tells webhooks."""

    def list(self, limit: int = 100, owner: str | None = None) -> list[Delivery]: ...


class ScheduleView(msgspec.Struct, kw_only=True):
    """A schedule and its next run."""

    object: Literal["schedule"] = "schedule"
    id: str
    name: str
    paused: bool
    problem: str
    created_at: float
    next_at: float | None
    spec: dict[str, Any]


class ScheduleList(msgspec.Struct, kw_only=True):
    """Schedules, sorted by name."""

    object: Literal["list"] = "list"
    data: list[ScheduleView]


class RunView(msgspec.Struct, kw_only=True):
    """A run of a schedule; `job` is null if the run started no job."""

    object: Literal["schedule.run"] = "schedule.run"
    id: str
    due_at: float
    state: str
    reason: str
    output: str
    job: str | None
    job_state: str | None


class RunList(msgspec.Struct, kw_only=True):
    """Runs of a schedule, newest first."""

    object: Literal["list"] = "list"
    data: list[RunView]


class DeliveryView(msgspec.Struct, kw_only=True):
    """A webhook delivery: one event for one webhook."""

    object: Literal["delivery"] = "delivery"
    id: str
    type: str
    subject: str
    webhook: str
    state: str
    attempts: int
    last: str
    created_at: float
    next_at: float | None


class DeliveryList(msgspec.Struct, kw_only=True):
    """Webhook deliveries, newest first."""

    object: Literal["list"] = "list"
    data: list[DeliveryView]


def add_schedules(app: App, desk: ScheduleDesk | NoJobs, deliveries: DeliveryDesk | NoJobs) -> None:
    """The paths below /v1/schedules, and /v1/deliveries."""
    face, one = _Schedules(desk, deliveries), "/v1/schedules/{schedule}"
    adding = Operation(
        "Create a schedule: run a job at the times of a cron expression, or whenever a marker file appears. "
        "`job` has the keys of a job file.",
        ScheduleView, ErrorReply, ScheduleSpec, statuses=_STATUSES,
    )  # fmt: skip
    for method, path, answer, about in (
        ("POST", "/v1/schedules", face.add, adding),
        ("GET", "/v1/schedules", face.list, _about("List the schedules.", ScheduleList)),
        ("GET", one, face.of(desk.get), _about("Show a schedule.", ScheduleView)),
        ("DELETE", one, face.of(desk.remove), _about("Delete a schedule; its jobs are kept.", ScheduleView)),
        ("POST", f"{one}/pause", face.of(desk.pause), _about("Pause a schedule.", ScheduleView)),
        (
            "POST",
            f"{one}/resume",
            face.of(desk.resume, begins=True),
            _about("Resume a paused schedule, starting with its next scheduled time.", ScheduleView),
        ),
        ("POST", f"{one}/run", face.run, _about("Run the job of a schedule now.", RunView)),
        ("GET", f"{one}/history", face.history, _about("List the runs of a schedule.", RunList)),
        ("GET", "/v1/deliveries", face.deliveries, _about("List webhook deliveries.", DeliveryList)),
    ):
        app.add(method, path, answer, told_openai, about, needs=Access.BATCH)


def _about(summary: str, gives: Any) -> Operation:
    return Operation(summary, gives, ErrorReply, statuses=_STATUSES)


def _limit(exchange: Exchange) -> int:
    return limit_of(query_of(exchange.request, ("limit",)), 100, _MOST_LISTED)


class _Schedules:
    def __init__(self, desk: ScheduleDesk | NoJobs, deliveries: DeliveryDesk | NoJobs) -> None:
        self._desk, self._deliveries = desk, deliveries
        self._quick, self._slow = BlockingCalls(_ANSWER_S, "schedules"), BlockingCalls(_LOOK_S, "schedules")

    async def add(self, exchange: Exchange) -> Reply:
        spec = await exchange.read(decoded, _spec, exchange.request.body)
        refuse_pages(exchange)
        caller = exchange.caller
        caller.enter(str(spec.job.get("model")), live=False)  # as where a job is submitted
        try:
            return await self._told(self._slow, self._desk.add, spec, submitter_of(exchange))
        finally:
            caller.leave()

    async def list(self, exchange: Exchange) -> Reply:
        owner = owner_of(exchange)
        found = await self._quick.ask(lambda: [self._view(each) for each in self._desk.list(owner)])
        return _reply(ScheduleList(data=found))

    def of(
        self, change: Callable[[str, str | None], ScheduleRecord], begins: bool = False
    ) -> Callable[[Exchange], Any]:
        """A face over one schedule; what `begins` jobs on a model needs a key that may use it."""

        async def face(exchange: Exchange) -> Reply:
            if exchange.request.method != "GET":
                refuse_pages(exchange)
            name, owner = exchange.matched["schedule"], owner_of(exchange)
            if begins:
                found = await self._quick.ask(self._desk.get, name, owner)
                exchange.caller.check_model(str(found.spec["job"].get("model")))
            return await self._told(self._quick, change, name, owner)

        return face

    async def run(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        name, owner, caller = exchange.matched["schedule"], owner_of(exchange), exchange.caller
        found = await self._quick.ask(self._desk.get, name, owner)
        caller.enter(str(found.spec["job"].get("model")), live=False)
        try:
            return _reply(_run_view(await self._slow.ask(self._desk.run, name, owner)))
        finally:
            caller.leave()

    async def history(self, exchange: Exchange) -> Reply:
        asked = (exchange.matched["schedule"], owner_of(exchange), _limit(exchange))
        found = await self._quick.ask(self._desk.history, *asked)
        return _reply(RunList(data=[_run_view(each) for each in found]))

    async def deliveries(self, exchange: Exchange) -> Reply:
        found = await self._quick.ask(self._deliveries.list, _limit(exchange), owner_of(exchange))
        return _reply(DeliveryList(data=[_delivery_view(each) for each in found]))

    async def _told(self, clerks: BlockingCalls, change: Callable[..., ScheduleRecord], *given: Any) -> Reply:
        """What there is then, with when it is due: that is looked for in the thread, too."""
        return _reply(await clerks.ask(lambda: self._view(change(*given))))

    def _view(self, record: ScheduleRecord) -> ScheduleView:
        return ScheduleView(
            id=record.id,
            name=record.name,
            paused=record.is_paused,
            problem=record.problem,
            created_at=record.created_unix_s,
            next_at=self._desk.next_unix_s(record),
            spec=record.spec,
        )


def _run_view(run: ScheduledRun) -> RunView:
    return RunView(
        id=run.id,
        due_at=run.due_unix_s,
        state=str(run.state),
        reason=run.reason,
        output=run.output,
        job=None if run.job_state is None else run.id,
        job_state=run.job_state,
    )


def _delivery_view(delivery: Delivery) -> DeliveryView:
    return DeliveryView(
        id=delivery.id,
        type=delivery.kind,
        subject=delivery.subject,
        webhook=delivery.webhook,
        state=str(delivery.state),
        attempts=delivery.attempts,
        last=delivery.told,
        created_at=delivery.created_unix_s,
        next_at=delivery.due_unix_s if delivery.state == "waiting" else None,
    )


def _reply(view: Any) -> Reply:
    return Reply(200, _encoder.encode(view))
