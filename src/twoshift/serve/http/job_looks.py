"""What clients ask of a job besides its state: its input before it starts, its failures, its report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from twoshift.batch_ports import InputLook, JobFailures
from twoshift.decodable import decodable
from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import NotFound
from twoshift.ports import JobRecord
from twoshift.serve.deployments import Deployment
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of, refuse_pages, submitter_of
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.job_estimate import JobEstimate, estimated
from twoshift.serve.keys import Access
from twoshift.serve.ledger import BATCH, Prices
from twoshift.serve.service import Service
from twoshift.types import JobKindName, Lane

__all__ = ["JobLookDesk", "add_job_looks"]

_ANSWER_S, _LOOK_S = 8.0, 60.0  # an input is listed, wherever it lies
_HTML = "text/html; charset=utf-8"
# Whoever may write into the folder may have replaced it: it runs no script, and has nothing of this site
_CONTENT = b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_STATUSES = (400, 403, 404, 413, 429, 503)
_encoder = msgspec.json.Encoder()


class Looks(Protocol):
    """What is asked of jobs."""

    def look(self, inputs: Sequence[str], input_format: str | None, owner: str) -> InputLook: ...

    def failures(self, job_id: str) -> JobFailures: ...

    def report(self, job_id: str) -> bytes | None: ...


class JobLookDesk(Protocol):
    """Who runs jobs. Calls take a while: they are made in threads."""

    @property
    def looks(self) -> Looks: ...

    def get(self, job_id: str, /) -> JobRecord: ...


@decodable
class EstimateRequest(msgspec.Struct, kw_only=True):
    """Keys of a job file; other keys are ignored."""

    inputs: list[str]
    model: str | None = None  # without it, only the input is looked at
    input_format: str | None = None


class ColumnView(msgspec.Struct):
    """A column of a job's input."""

    name: str
    type: str


class EstimateView(msgspec.Struct, kw_only=True):
    """Input and estimate of a job. `estimate` is null without a model, or if the model has no capacity for jobs."""

    object: Literal["job.estimate"] = "job.estimate"
    files: int
    size_bytes: int
    rows: int
    is_exact: bool
    columns: list[ColumnView]
    estimate: JobEstimate | None


class FailedRowView(msgspec.Struct):
    """A failed row. `row` has those columns that the setting `keep` of the job lists."""

    row: str
    error: str


class FailuresView(msgspec.Struct, kw_only=True):
    """Failed rows of a job: the count of each kind of error, and the first failed rows."""

    object: Literal["job.failures"] = "job.failures"
    kinds: dict[str, int]
    rows: list[FailedRowView]
    parts: int
    parts_read: int


_asked = msgspec.json.Decoder(EstimateRequest)


def add_job_looks(app: App, service: Service, desk: JobLookDesk | NoJobs, prices: Prices) -> None:
    """More of the paths below /v1/jobs."""
    face = _JobLooks(service, desk, prices)
    asking = Operation(
        "Read a job's input, and estimate its duration and cost. No job is started.",
        EstimateView, ErrorReply, EstimateRequest, statuses=_STATUSES,
    )  # fmt: skip
    for method, path, answer, about in (
        ("POST", "/v1/jobs/estimate", face.estimate, asking),
        ("GET", "/v1/jobs/{job}/failures", face.failures, _about("List the failed rows of a job.", FailuresView)),
        ("GET", "/v1/jobs/{job}/report", face.report, _about("Show the report of a job's last run.", _HTML)),
    ):
        app.add(method, path, answer, told_openai, about, needs=Access.BATCH)


def _about(summary: str, gives: Any) -> Operation:
    return Operation(summary, gives, ErrorReply, statuses=_STATUSES)


class _JobLooks:
    def __init__(self, service: Service, desk: JobLookDesk | NoJobs, prices: Prices) -> None:
        self._service, self._desk, self._prices = service, desk, prices
        self._quick, self._slow = BlockingCalls(_ANSWER_S, "jobs", 2), BlockingCalls(_LOOK_S, "inputs", 2)

    async def estimate(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        asked = await exchange.read(decoded, _asked, exchange.request.body)
        owner = submitter_of(exchange)
        if asked.model is not None:
            exchange.caller.check_model(asked.model)
            self._service.find(asked.model)
        found: InputLook = await self._slow.ask(self._looks().look, asked.inputs, asked.input_format, owner)
        view = EstimateView(
            files=found.files,
            size_bytes=found.size_bytes,
            rows=found.rows,
            is_exact=found.is_exact,
            columns=[ColumnView(each.name, each.type) for each in found.columns],
            estimate=None if asked.model is None else self._estimated(self._service.find(asked.model), found.rows),
        )
        return Reply(200, _encoder.encode(view))

    def _estimated(self, model: Deployment, rows: int) -> JobEstimate | None:
        replicas = model.replicas().ready
        age_s = max(1.0, time.time() - model.created_unix_s) * max(1, replicas)
        live_share = min(1.0, model.stats().lanes[Lane.ONLINE].device_s / age_s)
        return estimated(
            self._service.derived(model), rows, replicas, live_share, self._prices.usd(BATCH, model.name, 3600.0)
        )

    async def failures(self, exchange: Exchange) -> Reply:
        found: JobFailures = await self._slow.ask(self._of_own, exchange, lambda job: self._looks().failures(job))
        rows = [FailedRowView(row, error) for row, error in found.rows]
        view = FailuresView(kinds=found.kinds, rows=rows, parts=found.parts, parts_read=found.parts_read)
        return Reply(200, _encoder.encode(view))

    async def report(self, exchange: Exchange) -> Reply:
        found: bytes | None = await self._quick.ask(self._of_own, exchange, lambda job: self._looks().report(job))
        if found is None:
            accepted = "a job with a report; a job writes its report at the end of a run"
            raise NotFound("report", exchange.matched["job"], accepted)
        headers = [(b"content-security-policy", _CONTENT), (b"x-content-type-options", b"nosniff")]
        return Reply(200, found, _HTML.encode(), headers=headers)

    def _looks(self) -> Looks:
        """Raises why there are none."""
        if isinstance(self._desk, NoJobs):
            raise self._desk.error()
        return self._desk.looks

    def _of_own(self, exchange: Exchange, ask: Callable[[str], Any]) -> Any:
        """Raises NotFound where it is another tenant's, and of a batch, whose files say all that."""
        owner, job_id = owner_of(exchange), exchange.matched["job"]
        found: JobRecord = self._desk.get(job_id)
        if (found.owner != owner and owner is not None) or found.kind is JobKindName.REQUESTS:
            raise NotFound("job", job_id, "the id of an existing job")
        return ask(job_id)
