"""The end of a batch: its parts, in order, become an output file and an error file, however often it is tried."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from twoshift.batch.inputs import InputFile, piece_lines, resolve
from twoshift.batch.kinds.request_lines import not_run_line, read_line, response_line
from twoshift.batch.plan import Plan, part_location, read_plan
from twoshift.batch.requests.files import StoredFiles, staged_path, writing
from twoshift.batch.sinks.response_lines import Footer, read_footer
from twoshift.batch_ports import BatchRecord, FileRecord, FileStatus
from twoshift.decodable import decodable
from twoshift.endpoints.faults import Fault
from twoshift.errors import Broken

__all__ = ["FinalizedBatch", "NotDone", "finalize"]

_COPY_BYTES = 1 << 20
_PURPOSE = "batch_output"


class NotDone(msgspec.Struct, frozen=True):
    """What is said of requests that were not run."""

    code: str  # as the error file has it; empty: it is told as an HTTP failure
    message: str


@decodable
class _Frozen(msgspec.Struct, frozen=True):
    """Decided once: a part that comes later is too late, and what is not there is told in the same words each time."""

    shards: tuple[int, ...]
    not_done: NotDone


@dataclass(frozen=True, slots=True)
class FinalizedBatch:
    """A batch's files and figures."""

    output: FileRecord | None
    error: FileRecord | None
    completed: int
    failed: int
    tokens: int
    output_tokens: int
    cached_tokens: int
    not_run: int  # of those that failed


class _Side:
    """One of the two files."""

    def __init__(self, desk: StoredFiles, batch: BatchRecord, file_id: str, kind: str) -> None:
        self._desk, self._location = desk, desk.location(file_id)
        self._path = staged_path(desk.blobs, self._location)
        with writing():
            self._file = self._path.open("wb")
        self._digest, self._bytes = hashlib.sha256(), 0
        self._record = FileRecord(
            file_id, batch.owner, desk.clock(), f"{batch.id}_{kind}.jsonl", _PURPOSE, status=FileStatus.PROCESSED
        )
        self._expires_s = batch.output_expires_s

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        with writing():
            self._bytes += self._file.write(data)

    def copy(self, source: BinaryIO, size: int, location: str) -> None:
        while size:
            data = source.read(min(size, _COPY_BYTES))
            if not data:
                raise Broken(f"{location} is truncated")
            self.write(data)
            size -= len(data)

    def published(self) -> FileRecord | None:
        """None where there is nothing in it."""
        with writing():
            self._file.close()
        if not self._bytes:
            return None
        self._desk.blobs.publish(self._path, self._location)  # the same was there, if it was not us
        return replace(
            self._record, size_bytes=self._bytes, sha256=self._digest.hexdigest(),
            expires_unix_s=self._record.created_unix_s + self._expires_s,
        )  # fmt: skip

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk does not take what is left to write
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def finalize(desk: StoredFiles, batch: BatchRecord, not_done: NotDone) -> FinalizedBatch:
    """Both files; raises TryLater, Broken."""
    folder = desk.folder(batch.id)
    plan = read_plan(desk.blobs, folder)
    frozen = _frozen(desk, folder, plan, not_done)
    with (
        contextlib.closing(_Side(desk, batch, batch.output_id, "output")) as output,
        contextlib.closing(_Side(desk, batch, batch.error_id, "error")) as error,
    ):
        return _written(desk, batch, plan, frozen, output, error)


def _written(
    desk: StoredFiles, batch: BatchRecord, plan: Plan | None, frozen: _Frozen, output: _Side, error: _Side
) -> FinalizedBatch:
    completed = failed = tokens = output_tokens = cached_tokens = not_run = 0
    for shard in range(len(plan.shards)) if plan is not None else (0,):
        if plan is not None and shard in frozen.shards:
            stats = _copied(desk, part_location(plan, shard), output, error).stats
            completed, failed = completed + stats.rows - stats.errors, failed + stats.errors
            tokens, output_tokens = tokens + stats.tokens, output_tokens + stats.output_tokens
            cached_tokens += stats.cached_tokens
            continue
        for line in _lines(desk, batch, plan, shard):
            error.write(_told(batch.id, line, frozen.not_done))
            failed += 1
            not_run += bool(frozen.not_done.code)
    counts = (completed, failed, tokens, output_tokens, cached_tokens, not_run)
    return FinalizedBatch(output.published(), error.published(), *counts)


def _frozen(desk: StoredFiles, folder: str, plan: Plan | None, not_done: NotDone) -> _Frozen:
    location = f"{folder}/_twoshift/final.json"
    there = desk.blobs.names(folder) if plan is not None else set[str]()
    shards = range(len(plan.shards)) if plan is not None else ()
    found = tuple(shard for shard in shards if plan and Path(part_location(plan, shard)).name in there)
    desk.blobs.create(location, msgspec.json.encode(_Frozen(found, not_done)))
    return msgspec.json.decode(desk.blobs.read(location) or b"", type=_Frozen)


def _copied(desk: StoredFiles, location: str, output: _Side, error: _Side) -> Footer:
    with desk.blobs.open(location) as part:
        try:
            footer = read_footer(part)
        except msgspec.DecodeError as damage:
            raise Broken(f"{location} is not a complete output part of a batch; submit the batch again") from damage
        part.seek(0)
        output.copy(part, footer.output_bytes, location)
        error.copy(part, footer.error_bytes, location)
    return footer


def _lines(desk: StoredFiles, batch: BatchRecord, plan: Plan | None, shard: int) -> Iterator[bytes]:
    """The requests of a shard; of the whole file where it was never cut."""
    if plan is None:
        file: InputFile = resolve([desk.location(batch.input_file_id)], desk.blobs_for, "jsonl")[0]
        if file.size_bytes:
            yield from piece_lines(file.whole(), file, desk.blobs)
        return
    for piece in plan.shards[shard]:
        yield from piece_lines(piece, plan.files[piece.file], desk.blobs)


def _told(batch_id: str, line: bytes, not_done: NotDone) -> bytes:
    custom_id = read_line(line).custom_id
    if not_done.code:
        return not_run_line(batch_id, custom_id, not_done.code, not_done.message)
    return response_line(batch_id, custom_id, Fault(500, "internal_error", not_done.message))
