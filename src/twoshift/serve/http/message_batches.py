"""Anthropic's face of batches: requests in the body, results in a stream of lines."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec

from twoshift.batch_ports import BatchRecord, BatchWanted
from twoshift.endpoints.json_body import malformed
from twoshift.endpoints.message_types import AnthropicErrorReply
from twoshift.endpoints.messages import MESSAGES, told_anthropic
from twoshift.errors import InvalidInput, NotFound
from twoshift.serve.batch_desk import BatchDesk, NoBatches
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of, refuse_pages, submitter_of
from twoshift.serve.http.message_batch_types import (
    CreateMessageBatch,
    DeletedMessageBatch,
    MessageBatch,
    MessageBatchList,
    message_batch,
    result_line,
)
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import id_schema, limit_of, limit_schema, query_of
from twoshift.serve.keys import Access
from twoshift.serve.service import Service

__all__ = ["add_message_batches"]

_WINDOW = "24h"
_DEFAULT_LISTED, _MOST_LISTED = 20, 1000
_ANSWER_S, _WRITE_S = 8.0, 60.0
_PIECE_BYTES = 256 << 10
_LINES = "application/x-jsonl"
_encoder, _asked = msgspec.json.Encoder(), msgspec.json.Decoder(CreateMessageBatch)
_LIST = {"after_id": id_schema(), "before_id": id_schema(), "limit": limit_schema(_DEFAULT_LISTED, _MOST_LISTED)}


class _Named(msgspec.Struct):
    model: str


class _Line(msgspec.Struct):
    """A request as a batch's input has it."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


_named = msgspec.json.Decoder(_Named)


def add_message_batches(app: App, service: Service, desk: BatchDesk | NoBatches) -> None:
    """The paths below /v1/messages/batches."""
    face, path = _MessageBatches(app, service, desk), "/v1/messages/batches"
    create = Operation(
        "Create a message batch.", MessageBatch, AnthropicErrorReply, CreateMessageBatch,
        statuses=(400, 403, 404, 413, 429, 503),
    )  # fmt: skip
    app.add("POST", path, face.create, told_anthropic, create, needs=Access.BATCH)
    listing = Operation(
        "List message batches, newest first.",
        MessageBatchList,
        AnthropicErrorReply,
        query=_LIST,
        statuses=(400, 404, 503),
    )
    app.add("GET", path, face.list, told_anthropic, listing, needs=Access.BATCH)
    app.add(
        "GET",
        path + "/{batch}",
        face.get,
        told_anthropic,
        _of_one("Show the status of a message batch.", MessageBatch),
        needs=Access.BATCH,
    )
    cancel = _of_one("Cancel a message batch; the results of finished requests are kept.", MessageBatch)
    app.add("POST", path + "/{batch}/cancel", face.cancel, told_anthropic, cancel, needs=Access.BATCH)
    delete = _of_one("Delete a message batch that has ended, and its results.", DeletedMessageBatch)
    app.add("DELETE", path + "/{batch}", face.delete, told_anthropic, delete, needs=Access.BATCH)
    app.add(
        "GET",
        path + "/{batch}/results",
        face.results,
        told_anthropic,
        _of_one("Read the results of a message batch, one line per request.", _LINES),
        needs=Access.BATCH,
    )


def _of_one(summary: str, gives: Any) -> Operation:
    return Operation(summary, gives, AnthropicErrorReply, statuses=(400, 403, 404, 503))


class _MessageBatches:
    def __init__(self, app: App, service: Service, desk: BatchDesk | NoBatches) -> None:
        self._app, self._service, self._desk = app, service, desk
        self._clerks, self._disk = BlockingCalls(_ANSWER_S, "batches"), BlockingCalls(_WRITE_S, "files")

    def _told(self, exchange: Exchange, batch: BatchRecord) -> Reply:
        return Reply(200, _encoder.encode(message_batch(batch, self._address(exchange))))

    def _address(self, exchange: Exchange) -> str:
        """Where the client has reached us."""
        scheme = "https" if exchange.request.header(b"x-forwarded-proto") == "https" else self._app.scheme
        host = exchange.request.header(b"host")
        return "" if host is None else f"{scheme}://{host}"

    async def create(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        deployments = self._service.models
        served = {name: of for name, of in deployments.names().items() if of in deployments}
        models = {name: served.get(name, name) for name in exchange.caller.models or served}
        check = exchange.caller.of.check_storage
        made = await self._disk.ask(self._made, exchange.request.body, submitter_of(exchange), models, check)
        return self._told(exchange, made)

    async def get(self, exchange: Exchange) -> Reply:
        return self._told(exchange, await self._found(exchange))

    async def list(self, exchange: Exchange) -> Reply:
        asked = query_of(exchange.request, _LIST)
        limit = limit_of(asked, _DEFAULT_LISTED, _MOST_LISTED)
        after, before = asked.get("after_id"), asked.get("before_id")
        if after and before:
            raise InvalidInput("before_id", before, "either after_id or before_id, not both")
        found = await self._clerks.ask(self._desk.list, owner_of(exchange), limit + 1, after, before, MESSAGES)
        page = found[-limit:] if before else found[:limit]  # the one too many is the farthest
        data = [message_batch(each, self._address(exchange)) for each in page]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        return Reply(200, _encoder.encode(MessageBatchList(data, len(found) > limit, first, last)))

    async def cancel(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        found = await self._found(exchange)
        if found.status.is_over:  # it has ended: there is nothing to cancel, and nothing wrong
            return self._told(exchange, found)
        return self._told(exchange, await self._clerks.ask(self._desk.cancel, found.id, owner_of(exchange)))

    async def delete(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        found = await self._found(exchange)
        await self._disk.ask(self._desk.remove, found.id, owner_of(exchange))
        return Reply(200, _encoder.encode(DeletedMessageBatch(id=found.id)))

    async def results(self, exchange: Exchange) -> Reply:
        found = await self._found(exchange)
        if not found.status.is_over:
            raise InvalidInput("batch", str(found.status), "a batch that has ended; a running batch has no results yet")
        owner = owner_of(exchange)
        files = [
            await self._disk.ask(self._opened, each, owner)
            for each in (found.output_file_id, found.error_file_id)
            if each is not None
        ]
        return Reply(200, content_type=_LINES.encode(), stream=_pieces(self._disk, files), stream_bytes=None)

    async def _found(self, exchange: Exchange) -> BatchRecord:
        batch_id = exchange.matched["batch"]
        found = await self._clerks.ask(self._desk.get, batch_id, owner_of(exchange))
        if found.endpoint != MESSAGES:
            raise NotFound("batch", batch_id, "the id of a message batch")
        return found

    # In a clerk's thread

    def _made(
        self, body: bytes, owner: str, models: Mapping[str, str], check: Callable[[int, int], None]
    ) -> BatchRecord:
        """Of models by name, each with the one whose adapter it is, or itself."""
        try:
            asked = _asked.decode(body)
            named = {_named.decode(each.params).model for each in asked.requests}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise malformed(error) from None
        if len({each.custom_id for each in asked.requests}) < len(asked.requests):
            raise InvalidInput("requests", "duplicate custom_id", "a different custom_id for each request")
        if unknown := named - set(models):
            raise NotFound("model", min(unknown), f"one of these models: {', '.join(sorted(models))}")
        if len({models[name] for name in named}) > 1:
            raise InvalidInput("requests", sorted(named), "requests to only one model; send one batch per model")
        lines = [
            _encoder.encode(_Line(each.custom_id, "POST", MESSAGES, each.params)) + b"\n" for each in asked.requests
        ]
        digest = hashlib.sha256(b"".join(lines)).hexdigest()
        file_id = self._uploaded(lines, owner, check)
        wanted = BatchWanted(file_id, MESSAGES, _WINDOW, models=tuple(models), content=digest, total=len(lines))
        made = self._desk.create(wanted, owner)
        if made.input_file_id != file_id:  # it was asked for before
            self._desk.files.remove(file_id, owner)
        return made

    def _uploaded(self, lines: Sequence[bytes], owner: str, check: Callable[[int, int], None]) -> str:
        upload = self._desk.files.upload(owner, sum(map(len, lines)), check)
        try:
            upload.begin()
            for line in lines:
                upload.write(line)
            return upload.finish("message_batch.jsonl", "batch", None).id
        except BaseException:
            upload.abort()
            raise

    def _opened(self, file_id: str, owner: str | None) -> BinaryIO:
        return self._desk.files.open(self._desk.files.get(file_id, owner))


async def _pieces(disk: BlockingCalls, files: Sequence[BinaryIO]) -> AsyncGenerator[bytes]:
    try:
        for file in files:
            while lines := await disk.ask(file.readlines, _PIECE_BYTES):
                yield b"".join(map(result_line, lines))
    finally:
        for file in files:
            asyncio.get_running_loop().run_in_executor(None, file.close)  # a read may hold it
