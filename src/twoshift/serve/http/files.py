"""OpenAI's files: bytes in as they come and out as they are wanted, never all at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO

import msgspec

from twoshift.batch_ports import FileRecord
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import InvalidInput, OverLimit, TooLarge, TryLater
from twoshift.serve.batch_desk import FileDesk
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.batch_types import LEAST_EXPIRY_S, MOST_EXPIRY_S, Deleted, FileList, FileView, file_view
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of, refuse_pages, submitter_of
from twoshift.serve.http.form import read_form
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import id_schema, limit_of, limit_schema, query_of
from twoshift.serve.http.ranges import is_known, wanted_range
from twoshift.serve.keys import Access

__all__ = ["add_files"]

_PURPOSES = ("batch",)
_MOST_LISTED = 10_000
_ANSWER_S, _WRITE_S = 8.0, 60.0
_MOST_UPLOADS, _FULL_S = 32, 2.0
_MOST_OF_ONE = _MOST_UPLOADS // 4  # of a tenant's: its slow ones do not shut out others
_FORM_BYTES = 64 << 10  # that a form has beside its file
_PIECE_BYTES = 256 << 10
_JSONL = "application/jsonl"
_encoder = msgspec.json.Encoder()
_SECONDS = {"type": "integer", "minimum": LEAST_EXPIRY_S, "maximum": MOST_EXPIRY_S}
_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": [*_PURPOSES]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": _SECONDS,
    },
}
_LIST = {
    "after": id_schema(),
    "limit": limit_schema(_MOST_LISTED, _MOST_LISTED),
    "order": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    "purpose": {"type": "string"},
}


def add_files(app: App, desk: FileDesk) -> None:
    """The paths below /v1/files."""
    face = _Files(desk)
    asking = Operation(
        "Upload a file of requests, one JSON object per line.", FileView, ErrorReply, form=_FORM,
        statuses=(400, 403, 408, 413, 415, 429, 503),
    )  # fmt: skip
    app.add("POST", "/v1/files", face.upload, told_openai, asking, needs=Access.BATCH, kind=RouteKind.STREAMED)
    listing = Operation(
        "List files; `limit` and `after` select a page.", FileList, ErrorReply, query=_LIST, statuses=(400, 404, 503)
    )
    app.add("GET", "/v1/files", face.list, told_openai, listing, needs=Access.BATCH)
    app.add("GET", "/v1/files/{file}", face.get, told_openai, _of_one("Show a file.", FileView), needs=Access.BATCH)
    app.add(
        "DELETE", "/v1/files/{file}", face.delete, told_openai, _of_one("Delete a file.", Deleted), needs=Access.BATCH
    )
    content = Operation(
        "Download the content of a file; the headers ETag, If-None-Match and Range are supported.", _JSONL, ErrorReply,
        statuses=(400, 404, 503), also={206: _JSONL, 304: _JSONL, 416: ErrorReply},
    )  # fmt: skip
    app.add("GET", "/v1/files/{file}/content", face.content, told_openai, content, needs=Access.BATCH)


def _of_one(summary: str, gives: Any) -> Operation:
    return Operation(summary, gives, ErrorReply, statuses=(400, 403, 404, 503))


class _Files:
    def __init__(self, desk: FileDesk) -> None:
        self._desk = desk
        self._quick, self._disk = BlockingCalls(_ANSWER_S, "files"), BlockingCalls(_WRITE_S, "files", threads=8)
        self._uploads = Counter[str]()  # on their way, by owner

    async def upload(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        owner, tenant = submitter_of(exchange), exchange.caller.of
        upload = self._desk.upload(owner, self._declared_bytes(exchange), tenant.check_storage)
        self._check_uploads(owner)
        self._uploads[owner] += 1
        try:
            await self._quick.ask(upload.begin)
            form = await read_form(exchange.request, lambda data: self._disk.ask(upload.write, data))
            name, purpose, expires_s = form.filename, _purpose(form.fields), _expiry(form.fields)
            record = await self._disk.ask(upload.finish, name, purpose, expires_s)
        except BaseException:  # the client may be gone: nobody waits for it
            asyncio.get_running_loop().run_in_executor(None, upload.abort)
            raise
        finally:
            self._uploads[owner] -= 1
        return Reply(200, _encoder.encode(file_view(record)))

    def _declared_bytes(self, exchange: Exchange) -> int:
        """Of the form, which is a little more than its file; raises TooLarge."""
        most = self._desk.limits.max_bytes
        given = exchange.request.header(b"content-length")
        if given is not None and int(given) > most + _FORM_BYTES:
            raise TooLarge("file", f"a form of {int(given):,} bytes", f"a file of at most {most:,} bytes")
        return most if given is None else int(given)

    def _check_uploads(self, owner: str) -> None:
        if self._uploads.total() >= _MOST_UPLOADS:
            raise TryLater(f"this server has reached its limit of {_MOST_UPLOADS} concurrent uploads", _FULL_S)
        if owner and self._uploads[owner] >= _MOST_OF_ONE:
            why = f"the tenant {owner} has reached the limit of {_MOST_OF_ONE} concurrent uploads per tenant"
            raise OverLimit(why, _FULL_S)

    async def list(self, exchange: Exchange) -> Reply:
        asked = query_of(exchange.request, _LIST)
        limit, order = limit_of(asked, _MOST_LISTED, _MOST_LISTED), asked.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidInput("order", order, "asc or desc")
        found = await self._quick.ask(
            self._desk.list, owner_of(exchange), limit + 1, asked.get("after"), order == "asc", asked.get("purpose")
        )
        data = [file_view(each) for each in found[:limit]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        page = FileList(data=data, first_id=first, last_id=last, has_more=len(found) > limit)
        return Reply(200, _encoder.encode(page))

    async def get(self, exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(file_view(await self._found(exchange))))

    async def delete(self, exchange: Exchange) -> Reply:
        refuse_pages(exchange)
        file_id = exchange.matched["file"]
        await self._disk.ask(self._desk.remove, file_id, owner_of(exchange))
        return Reply(200, _encoder.encode(Deleted(id=file_id)))

    async def content(self, exchange: Exchange) -> Reply:
        record, request = await self._found(exchange), exchange.request
        etag = f'"{record.sha256}"'
        headers = [(b"etag", etag.encode()), (b"accept-ranges", b"bytes")]
        if is_known(request, etag):
            return Reply(304, headers=headers)
        wanted = wanted_range(request, etag, record.size_bytes)
        start, stop = (0, record.size_bytes) if wanted is None else wanted
        if wanted is not None and start >= stop:
            accepted = f"a range within the file, which has {record.size_bytes:,} bytes"
            raise_range = InvalidInput("range", request.header(b"range"), accepted)
            return _unsatisfiable(raise_range, record.size_bytes)
        if wanted is not None:
            headers.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, record.size_bytes)))
        file = await self._disk.ask(self._desk.open, record)
        pieces = _pieces(self._disk, file, start, stop)
        status = 200 if wanted is None else 206
        return Reply(status, content_type=_JSONL.encode(), headers=headers, stream=pieces, stream_bytes=stop - start)

    async def _found(self, exchange: Exchange) -> FileRecord:
        return await self._quick.ask(self._desk.get, exchange.matched["file"], owner_of(exchange))


async def _pieces(disk: BlockingCalls, file: BinaryIO, start: int, stop: int) -> AsyncGenerator[bytes]:
    try:
        await disk.ask(file.seek, start)
        while start < stop:
            piece = await disk.ask(file.read, min(_PIECE_BYTES, stop - start))
            if not piece:
                raise EOFError(f"the stored file ends at byte {start:,} instead of {stop:,}")
            start += len(piece)
            yield piece
    finally:
        asyncio.get_running_loop().run_in_executor(None, file.close)  # a read may hold it


def _unsatisfiable(error: InvalidInput, size: int) -> Reply:
    from twoshift.endpoints.faults import Fault

    told = told_openai(Fault(416, "invalid_request_error", str(error), error.field))
    return Reply(416, told, headers=[(b"content-range", b"bytes */%d" % size)])


def _purpose(fields: dict[str, str]) -> str:
    given = fields.get("purpose")
    if given not in _PURPOSES:
        raise InvalidInput("purpose", given, " or ".join(_PURPOSES))
    return given


def _expiry(fields: dict[str, str]) -> float | None:
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise InvalidInput("expires_after[anchor]", anchor, "created_at")
    whole = seconds is not None and seconds.isascii() and seconds.isdigit() and len(seconds) < 10
    if not whole or not LEAST_EXPIRY_S <= int(seconds or 0) <= MOST_EXPIRY_S:
        accepted = f"a whole number from {LEAST_EXPIRY_S} to {MOST_EXPIRY_S}"
        raise InvalidInput("expires_after[seconds]", seconds, accepted)
    return float(seconds or 0)
