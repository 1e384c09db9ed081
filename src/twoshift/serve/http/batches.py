"""OpenAI's batches: requests of a file, run within a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from twoshift.batch_ports import BatchRecord, BatchWanted
from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.serve.batch_desk import BatchDesk, NoBatches
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.batch_types import BatchList, BatchView, CreateBatch, RetryBatch, batch_view
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of, refuse_pages
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import id_schema, limit_of, limit_schema, query_of
from twoshift.serve.keys import Access

__all__ = ["add_batches"]

_DEFAULT_LISTED, _MOST_LISTED = 20, 100
_ANSWER_S, _RETRY_S = 8.0, 60.0  # what failed of a large file is looked for
_encoder, _asked, _again = msgspec.json.Encoder(), msgspec.json.Decoder(CreateBatch), msgspec.json.Decoder(RetryBatch)
_LIST = {"after": id_schema(), "limit": limit_schema(_DEFAULT_LISTED, _MOST_LISTED)}


def add_batches(app: App, desk: BatchDesk | NoBatches) -> None:
    """The paths below /v1/batches."""
    face = _Batches(desk)
    asking = Operation(
        "Create a batch: run the requests of a file within a time window.", BatchView, ErrorReply, CreateBatch,
        statuses=(400, 403, 404, 413, 429, 503),
    )  # fmt: skip
    app.add("POST", "/v1/batches", face.create, told_openai, asking, needs=Access.BATCH)
    listing = Operation("List batches, newest first.", BatchList, ErrorReply, query=_LIST, statuses=(400, 404, 503))
    app.add("GET", "/v1/batches", face.list, told_openai, listing, needs=Access.BATCH)
    app.add(
        "GET",
        "/v1/batches/{batch}",
        face.one(desk.get),
        told_openai,
        _of_one("Show the status of a batch."),
        needs=Access.BATCH,
    )
    cancel = _of_one("Cancel a batch; the results of finished requests are kept.")
    app.add("POST", "/v1/batches/{batch}/cancel", face.one(desk.cancel), told_openai, cancel, needs=Access.BATCH)
    retry = Operation(
        ("Create a new batch of the requests that failed or "
         "did not run."), BatchView, ErrorReply, RetryBatch, may_be_empty=True,
        statuses=(400, 403, 404, 413, 429, 503),
    )  # fmt: skip
    app.add("POST", "/v1/batches/{batch}/retry", face.retry, told_openai, retry, needs=Access.BATCH)


def _of_one(summary: str, *statuses: int) -> Operation:
    return Operation(summary, BatchView, ErrorReply, statuses=(400, 403, 404, *statuses, 503))


class _Batches:
    def __init__(self, desk: BatchDesk | NoBatches) -> None:
        self._desk = desk
        self._clerks, self._slow_clerks = BlockingCalls(_ANSWER_S, "batches"), BlockingCalls(_RETRY_S, "batches")

    async def create(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        asked: CreateBatch = await exchange.read(decoded, _asked, exchange.request.body)
        expiry = asked.output_expires_after
        expires_s = None if expiry is None else float(expiry.seconds)
        wanted = BatchWanted(
            asked.input_file_id, asked.endpoint, asked.completion_window, asked.metadata, expires_s,
            exchange.caller.models,
        )  # fmt: skip
        return _told(await self._clerks.ask(self._desk.create, wanted, owner_of(exchange)))

    async def list(self, exchange: Exchange) -> Reply:
        asked = query_of(exchange.request, _LIST)
        limit = limit_of(asked, _DEFAULT_LISTED, _MOST_LISTED)
        found = await self._clerks.ask(self._desk.list, owner_of(exchange), limit + 1, asked.get("after"))
        data = [batch_view(each) for each in found[:limit]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        page = BatchList(data=data, first_id=first, last_id=last, has_more=len(found) > limit)
        return Reply(200, _encoder.encode(page))

    async def retry(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        body = exchange.request.body
        window = decoded(_again, body).completion_window if body else None
        batch, owner, caller = exchange.matched["batch"], owner_of(exchange), exchange.caller
        found = await self._clerks.ask(self._desk.get, batch, owner)
        may_all = bool(found.models) and {*found.models} <= {*caller.models}  # a key for adapters has not their model
        if found.model is not None and not may_all:  # none: nobody has read it; the new one is checked as it is read
            caller.check_model(found.model)
        return _told(await self._slow_clerks.ask(self._desk.retry, batch, owner, window, caller.models))

    def one(self, of: Callable[[str, str | None], BatchRecord]) -> Callable[..., Any]:
        """A face over one batch."""

        async def face(exchange: Exchange) -> Reply:
            if exchange.request.method == "POST":
                refuse_pages(exchange)
            return _told(await self._clerks.ask(of, exchange.matched["batch"], owner_of(exchange)))

        return face


def _told(batch: BatchRecord) -> Reply:
    return Reply(200, _encoder.encode(batch_view(batch)))
