"""Batches in a database: a row each, however many requests they have."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from twoshift.batch_ports import BatchRecord, FileRecord, FileStatus
from twoshift.errors import NotFound
from twoshift.policy.job_states import batch_end, batch_status
from twoshift.store.claim import SqlClaim
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.files import add_if_new
from twoshift.store.notices import post_notice
from twoshift.store.tables import batches, files, jobs
from twoshift.trigger_ports import Notice
from twoshift.types import BatchStatus, JobState

__all__ = ["SqlBatches"]

_MOST_UNSWEPT = 1000  # at a time
_JOB = ("state", "created_unix_s", "updated_unix_s")
_DETAILS = ("output_id", "error_id", "output_expires_s", "metadata", "models")
_PLAIN = (
    "id", "owner", "endpoint", "input_file_id", "window", "created_unix_s", "expires_unix_s", "fingerprint", "model",
    "errors", "output_file_id", "error_file_id", "total", "completed", "failed", "tokens",
    "output_tokens", "cached_tokens", "not_run",
)  # fmt: skip
_ENDS = tuple(str(status) for status in BatchStatus if status.is_over)
_TIMES = ("cancelling", *_ENDS)  # a column each; the other times are its job's
_IS_OPEN = batches.c.ended_as.is_(None)
_JOB_OVER = jobs.c.state.in_([str(state) for state in JobState if state.is_over])
_of_job = (jobs.c.progress, *(getattr(jobs.c, name).label(f"job_{name}") for name in _JOB))
_wanted = select(batches, *_of_job).outerjoin(jobs, jobs.c.id == batches.c.id)


class SqlBatches:
    """A BatchStore; with a claim, of the server that has it."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, claim: SqlClaim | None = None
    ) -> None:
        self._database, self._clock = ClaimedDatabase(database, claim), clock

    def add_batch(self, batch: BatchRecord, since_unix_s: float) -> BatchRecord:
        """Remember it, or the same one of somebody who asks again; raises NotFound where its file is not there."""
        there = (files.c.id == batch.input_file_id) & (files.c.owner == batch.owner)
        usable = select(files.c.id).where(there, files.c.status == str(FileStatus.PROCESSED)).with_for_update()

        def added(connection: Connection) -> BatchRecord:
            if connection.execute(usable).first() is None:
                raise NotFound("input_file_id", batch.input_file_id, "the id of an existing file")
            if (same := connection.execute(_same(batch.fingerprint, since_unix_s)).first()) is not None:
                return _record(same)
            connection.execute(insert(batches).values(_values(batch)))
            return batch

        return self._database.changed(added)

    def batch(self, batch_id: str, owner: str | None = None) -> BatchRecord:
        """Raises NotFound."""
        found = self._database.found(_wanted.where(_seen(batch_id, owner)))
        if not found:
            raise _not_there("batch", batch_id)
        return _record(found[0])

    def same_batch(self, fingerprint: str, since_unix_s: float) -> BatchRecord | None:
        """One of that content, made since then."""
        found = self._database.found(_same(fingerprint, since_unix_s))
        return _record(found[0]) if found else None

    def list_batches(
        self,
        owner: str | None,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        endpoint: str | None = None,
    ) -> list[BatchRecord]:
        """The newest first; `after` is the id of the last one that was seen, `before` of the first. Raises NotFound."""
        number = batches.c.number
        wanted = _wanted.order_by(number.desc() if before is None else number).limit(limit)
        if owner is not None:
            wanted = wanted.where(batches.c.owner == owner)
        if endpoint is not None:
            wanted = wanted.where(batches.c.endpoint == endpoint)
        if after is not None:
            wanted = wanted.where(number < self._number("after", after, owner))
        if before is not None:
            wanted = wanted.where(number > self._number("before", before, owner))
        found = [_record(row) for row in self._database.found(wanted)]
        return found if before is None else found[::-1]

    def remove_batch(self, batch_id: str) -> None:
        """Nobody sees it any more."""
        self._database.changed(lambda connection: connection.execute(delete(batches).where(batches.c.id == batch_id)))

    def _number(self, field: str, batch_id: str, owner: str | None) -> int:
        found = self._database.found(select(batches.c.number).where(_seen(batch_id, owner)))
        if not found:
            raise _not_there(field, batch_id)
        return int(found[0].number)

    def open_batches(self, owner: str) -> int:
        """How many of an owner's are not over."""
        wanted = select(func.count().label("total")).where(batches.c.owner == owner, _IS_OPEN)
        return int(self._database.found(wanted)[0].total)

    def counted_batches(self) -> dict[str, tuple[int, float]]:
        """How many of each status there are, and when the oldest of them was made."""
        columns = (batches.c.ended_as, batches.c.cancelling_unix_s.is_not(None).label("cancelled"), jobs.c.state)
        total, oldest = func.count().label("total"), func.min(batches.c.created_unix_s).label("oldest")
        wanted: Any = select(*columns, total, oldest).outerjoin(jobs, jobs.c.id == batches.c.id).group_by(*columns)
        found = dict[str, tuple[int, float]]()
        for row in self._database.found(wanted):
            status = str(batch_status(_end(row), bool(row.cancelled), _job(row.state)))
            count, since_s = found.get(status, (0, math.inf))
            found[status] = (count + int(row.total), min(since_s, float(row.oldest)))
        return found

    def stirring_batches(self) -> list[str]:
        """Those with something to be done: not over, and not waiting for a job that is not over. Oldest first."""
        stirs = batches.c.cancelling_unix_s.is_not(None) | _JOB_OVER | jobs.c.id.is_(None)
        wanted: Select[Any] = select(batches.c.id).outerjoin(jobs, jobs.c.id == batches.c.id)
        return [str(row.id) for row in self._database.found(wanted.where(_IS_OPEN, stirs).order_by(batches.c.number))]

    def due_batches(self, now_unix_s: float) -> list[str]:
        """Those whose window has passed and whose jobs are not over."""
        wanted: Select[Any] = select(batches.c.id).join(jobs, jobs.c.id == batches.c.id)
        wanted = wanted.where(_IS_OPEN, ~_JOB_OVER, batches.c.expires_unix_s <= now_unix_s)
        return [str(row.id) for row in self._database.found(wanted)]

    def checked_batch(self, batch_id: str, model: str, total: int) -> None:
        """Its file has been looked through, and can be run."""
        change = update(batches).where(batches.c.id == batch_id, _IS_OPEN).values(model=model, total=total)
        self._database.changed(lambda connection: connection.execute(change))

    def cancel_batch(self, batch_id: str) -> BatchRecord | None:
        """Somebody wants it to end; None where it was over."""
        change = update(batches).where(batches.c.id == batch_id, _IS_OPEN).values(cancelling_unix_s=self._clock())

        def cancelled(connection: Connection) -> BatchRecord | None:
            return _one(connection, batch_id) if connection.execute(change).rowcount == 1 else None

        return self._database.changed(cancelled)

    def end_batch(self, batch_id: str, files: Sequence[FileRecord], **values: Any) -> BatchRecord | None:
        """It is over, as `batch_end` says how, and its files are there; None where it was over."""

        def ended(connection: Connection) -> BatchRecord | None:
            connection.execute(select(batches.c.id).where(batches.c.id == batch_id).with_for_update())
            before = _one(connection, batch_id)
            if before.end is not None:
                return None
            for file in files:
                add_if_new(connection, file)
            end = batch_end("errors" in values, before.is_cancelled, before.job, values.get("not_run", 0))
            change = {"ended_as": str(end), f"{end}_unix_s": self._clock(), **values}
            connection.execute(update(batches).where(batches.c.id == batch_id).values(change))
            after = _one(connection, batch_id)
            post_notice(connection, _ended(after))
            return after

        return self._database.changed(ended)

    def unswept_batches(self) -> list[str]:
        """Those that are over and whose folders are there."""
        wanted = select(batches.c.id).where(batches.c.swept.is_(False), ~_IS_OPEN)
        return [str(row.id) for row in self._database.found(wanted.limit(_MOST_UNSWEPT))]

    def swept_batch(self, batch_id: str) -> None:
        """Its folder is gone."""
        change = update(batches).where(batches.c.id == batch_id).values(swept=True)
        self._database.changed(lambda connection: connection.execute(change))


def _one(connection: Connection, batch_id: str) -> BatchRecord:
    """The batch as it is now."""
    return _record(connection.execute(_wanted.where(batches.c.id == batch_id)).one())


def _ended(batch: BatchRecord) -> Notice:
    """What those who want to know of it are told."""
    counts = {"total": batch.total, "completed": batch.completed, "failed": batch.failed}
    data = {"id": batch.id, "object": "batch", "status": str(batch.status), "model": batch.model}
    data |= {"endpoint": batch.endpoint, "request_counts": counts}
    data |= {"output_file_id": batch.output_file_id, "error_file_id": batch.error_file_id}
    return Notice(batch.owner, f"batch.{batch.status}", batch.id, data, time.time())


def _same(fingerprint: str, since_unix_s: float) -> Select[Any]:
    made = (batches.c.fingerprint == fingerprint) & (batches.c.created_unix_s >= since_unix_s)
    # a request after a failed validation is a new try
    usable = _IS_OPEN | (batches.c.ended_as != str(BatchStatus.FAILED))
    return _wanted.where(made, usable).order_by(batches.c.number.desc()).limit(1)


def _seen(batch_id: str, owner: str | None) -> Any:
    found = batches.c.id == batch_id
    return found if owner is None else found & (batches.c.owner == owner)


def _not_there(field: str, given: str) -> NotFound:
    return NotFound(field, given, "the id of an existing batch")


def _values(batch: BatchRecord) -> dict[str, Any]:
    plain = {name: getattr(batch, name) for name in _PLAIN}
    details = {name: getattr(batch, name) for name in _DETAILS} | {"models": list(batch.models)}
    return {**plain, "details": details, "ended_as": batch.end, "swept": False}


def _record(row: Any) -> BatchRecord:
    times = {name: getattr(row, f"{name}_unix_s") for name in _TIMES} | _times_of_job(row)
    return BatchRecord(
        **{name: getattr(row, name) for name in _PLAIN},
        **{name: row.details[name] for name in _DETAILS if name != "models"},
        models=tuple(row.details["models"]),
        end=_end(row),
        job=_job(row.job_state),
        times={name: at for name, at in times.items() if at is not None},
        progress=row.progress,
    )


def _times_of_job(row: Any) -> dict[str, float | None]:
    """A batch is in progress since it has a job, and is put together once that has come to its end."""
    is_done = _job(row.job_state) in (JobState.DONE, JobState.FAILED)
    return {"in_progress": row.job_created_unix_s, "finalizing": row.job_updated_unix_s if is_done else None}


def _end(row: Any) -> BatchStatus | None:
    return None if row.ended_as is None else BatchStatus(row.ended_as)


def _job(state: str | None) -> JobState | None:
    return None if state is None else JobState(state)
