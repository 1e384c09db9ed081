"""Streams on the replicas that serve: submit, look, pause, resume, cancel."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.serve.http.app import App
from twoshift.serve.http.jobs import JobDesk, JobLogView, NoJobs, RecordFaces, RecordView, of_one
from twoshift.serve.http.openapi import Operation
from twoshift.serve.keys import Access

__all__ = ["add_streams"]


class StreamView(RecordView, frozen=True, kw_only=True):
    """A stream. `progress` has the lag, and since the last start the freshness, rows and cost in dollars."""

    object: Literal["stream"] = "stream"


class StreamList(msgspec.Struct, kw_only=True):
    """Streams, newest first."""

    object: Literal["list"] = "list"
    data: list[StreamView]


def add_streams(app: App, desk: JobDesk | NoJobs) -> None:
    """The paths below /v1/streams."""
    face = RecordFaces(desk, "stream", StreamView.of, threads=2)
    asking = Operation(
        "Start a stream: run a served model over rows as they arrive. Live requests have priority over streams, and "
        "streams have priority over jobs. The body has the keys of a stream file.",
        StreamView, ErrorReply, dict[str, Any], statuses=(400, 403, 404, 429, 503),
    )  # fmt: skip
    listing = Operation(
        "List streams, newest first; `limit` and `after` select a page.", StreamList, ErrorReply, statuses=(400, 503)
    )
    for method, path, answer, about in (
        ("POST", "/v1/streams", face.submit, asking),
        ("GET", "/v1/streams", face.list, listing),
        ("GET", "/v1/streams/{stream}", face.one(desk.get),
         of_one("Show a stream: its state, lag, freshness, freshness objective, rows per second and dollars.",
                StreamView)),
        ("GET", "/v1/streams/{stream}/log", face.log, of_one("Read the log of a stream.", JobLogView)),
        ("POST", "/v1/streams/{stream}/pause", face.one(desk.pause),
         of_one("Pause a stream: commit the windows in progress, then read no rows until the stream is resumed.",
                StreamView)),
        ("POST", "/v1/streams/{stream}/resume", face.one(desk.resume, begins=True),
         of_one("Resume a stream that was paused or has failed.", StreamView)),
        ("POST", "/v1/streams/{stream}/cancel", face.one(desk.cancel),
         of_one("Cancel a stream; committed parts are kept.", StreamView)),
    ):  # fmt: skip
        app.add(method, path, answer, told_openai, about, needs=Access.BATCH)
