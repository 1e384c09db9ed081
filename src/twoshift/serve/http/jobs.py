"""Jobs on the replicas that serve: submit, look, pause, resume, cancel."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Protocol, Self

import msgspec

from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import Disabled, NotFound, TwoshiftError
from twoshift.ports import JobRecord
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of, refuse_pages, submitter_of
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import limit_of, query_of
from twoshift.serve.keys import Access
from twoshift.types import JobKindName, JobState

__all__ = ["JobDesk", "JobLogView", "NoJobs", "RecordFaces", "RecordView", "add_jobs", "of_one"]

_MOST_LISTED = 1000
_ANSWER_S, _SUBMIT_S = 8.0, 60.0  # a new job's input is listed, wherever it lies
_encoder, _settings = msgspec.json.Encoder(), msgspec.json.Decoder(dict[str, Any])


class JobDesk(Protocol):
    """Who runs jobs, or streams. Calls take a while: they are made in threads."""

    def submit(self, data: dict[str, Any], owner: str = "") -> JobRecord: ...

    def get(self, job_id: str, /) -> JobRecord: ...

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]: ...

    def notes(self, job_id: str, /) -> list[tuple[float, str]]: ...

    def pause(self, job_id: str, /) -> JobRecord: ...

    def resume(self, job_id: str, /) -> JobRecord: ...

    def cancel(self, job_id: str, /) -> JobRecord: ...


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of jobs and streams."""

    object: str = ""  # "job" or "stream"
    id: str
    tenant: str  # whose it is; empty where there are no keys
    state: str
    reason: str
    created_at: float
    updated_at: float
    settings: dict[str, Any]
    progress: dict[str, Any] | None

    @classmethod
    def of(cls, record: JobRecord) -> Self:
        """As the desk remembers it."""
        return cls(
            id=record.id,
            tenant=record.owner,
            state=str(record.state),
            reason=record.reason or _why_held(record),
            created_at=record.created_unix_s,
            updated_at=record.updated_unix_s,
            settings=record.settings,
            progress=record.progress,
        )


class JobView(RecordView, frozen=True, kw_only=True):
    """A job: state, progress and settings."""

    object: Literal["job"] = "job"


class JobList(msgspec.Struct, kw_only=True):
    """Jobs, newest first."""

    object: Literal["list"] = "list"
    data: list[JobView]


class LogLine(msgspec.Struct):
    """One log line of a job."""

    at: float
    text: str


class JobLogView(msgspec.Struct, kw_only=True):
    """Log of a job, oldest line first."""

    object: Literal["list"] = "list"
    data: list[LogLine]


class NoJobs:
    """A desk where nobody is."""

    def __init__(self, why: str | TwoshiftError) -> None:
        """What to install or to change; or the error itself, which says when it may be over."""
        self.why = why

    def start(self) -> None:
        """There is nothing to go on with."""

    def close(self, grace_s: float = 0.0) -> bool:
        """There is nothing to end."""
        return True

    def error(self) -> TwoshiftError:
        """What whoever asks is told."""
        return Disabled("jobs", self.why) if isinstance(self.why, str) else copy(self.why)

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any) -> Any:
            raise self.error()

        return refuse


def add_jobs(app: App, desk: JobDesk | NoJobs) -> None:
    """The paths below /v1/jobs."""
    face = RecordFaces(desk, "job", _view)
    asking = Operation(
        "Start a job: run a served model over a dataset, in idle time. The body has the keys of a job file.",
        JobView, ErrorReply, dict[str, Any], statuses=(400, 403, 404, 429, 503),
    )  # fmt: skip
    listing = Operation(
        "List jobs, newest first; `limit` and `after` select a page.", JobList, ErrorReply, statuses=(400, 503)
    )
    for method, path, answer, about in (
        ("POST", "/v1/jobs", face.submit, asking),
        ("GET", "/v1/jobs", face.list, listing),
        ("GET", "/v1/jobs/{job}", face.one(desk.get), of_one("Show the state and progress of a job.", JobView)),
        ("GET", "/v1/jobs/{job}/log", face.log, of_one("Read the log of a job.", JobLogView)),
        ("POST", "/v1/jobs/{job}/pause", face.one(desk.pause),
         of_one("Pause a job: running shards finish, and no new shards start until the job is resumed.", JobView)),
        ("POST", "/v1/jobs/{job}/resume", face.one(desk.resume, begins=True),
         of_one("Resume a job that was paused or has failed.", JobView)),
        ("POST", "/v1/jobs/{job}/cancel", face.one(desk.cancel), of_one("Cancel a job.", JobView)),
    ):  # fmt: skip
        app.add(method, path, answer, told_openai, about, needs=Access.BATCH)


def of_one(summary: str, gives: Any) -> Operation:
    """What is asked of one job or stream."""
    return Operation(summary, gives, ErrorReply, statuses=(400, 403, 404, 429, 503))


class RecordFaces:
    """Faces over what a desk remembers: jobs, or streams."""

    def __init__(self, desk: JobDesk | NoJobs, noun: str, view: Callable[[JobRecord], Any], threads: int = 4) -> None:
        """`noun` is the part of the path with an id; `view` is what clients see."""
        self._desk, self._noun, self._view = desk, noun, view
        self._quick = BlockingCalls(_ANSWER_S, f"{noun}s", threads)
        self._slow = BlockingCalls(_SUBMIT_S, f"{noun}s", threads)

    async def submit(self, exchange: Exchange) -> Reply:
        """A new one."""
        data = await exchange.read(decoded, _settings, exchange.request.body)
        refuse_pages(exchange)
        caller, model = exchange.caller, str(data.get("model"))
        caller.enter(model, live=False)  # a key that may not ask the model may not run a job on it
        try:
            return self._told(await self._slow.ask(self._desk.submit, data, submitter_of(exchange)))
        finally:
            caller.leave()

    async def list(self, exchange: Exchange) -> Reply:
        """The newest first."""
        asked = query_of(exchange.request, ("limit", "after"))
        limit = limit_of(asked, 100, _MOST_LISTED)
        found = await self._quick.ask(self._desk.list, limit, asked.get("after"), owner_of(exchange))
        return Reply(200, _encoder.encode({"object": "list", "data": [self._view(each) for each in found]}))

    async def log(self, exchange: Exchange) -> Reply:
        """Of one."""
        await self._quick.ask(self._own, exchange)
        found = await self._quick.ask(self._desk.notes, exchange.matched[self._noun])
        return Reply(200, _encoder.encode(JobLogView(data=[LogLine(at, text) for at, text in found])))

    def one(self, of: Callable[[str], JobRecord], begins: bool = False) -> Callable[[Exchange], Any]:
        """A face over one; what `begins` work on a model needs a key that may use it."""

        async def face(exchange: Exchange) -> Reply:
            if exchange.request.method == "POST":
                refuse_pages(exchange)
            found = await self._quick.ask(self._own, exchange)
            if begins:
                exchange.caller.check_model(str(found.settings.get("adapter") or found.settings.get("model")))
            return self._told(await self._quick.ask(of, exchange.matched[self._noun]))

        return face

    def _own(self, exchange: Exchange) -> JobRecord:
        """Raises NotFound where it is another tenant's: nobody can tell that from one that is not there."""
        owner, record_id = owner_of(exchange), exchange.matched[self._noun]
        found: JobRecord = self._desk.get(record_id)
        if found.owner != owner and owner is not None:
            raise NotFound(self._noun, record_id, f"the id of an existing {self._noun}")
        return found

    def _told(self, record: JobRecord) -> Reply:
        return Reply(200, _encoder.encode(self._view(record)))


def _why_held(record: JobRecord) -> str:
    """Why it does not get on although it runs; empty where it does."""
    return str((record.progress or {}).get("held") or "") if record.state is JobState.RUNNING else ""


def _view(record: JobRecord) -> JobView:
    if record.kind is JobKindName.REQUESTS:  # a batch: where the server keeps its files is nobody's to know
        settings = record.settings
        root = f"{posixpath.dirname(settings['output'])}/"
        names = [posixpath.basename(each) for each in settings["inputs"]]
        settings = {**settings, "inputs": names, "output": posixpath.basename(settings["output"])}
        record = replace(record, settings=settings, reason=record.reason.replace(root, ""))
    return JobView.of(record)
