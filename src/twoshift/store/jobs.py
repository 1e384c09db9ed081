"""Jobs in a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from twoshift.errors import NotFound
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.store.claim import SqlClaim
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.notices import post_notice
from twoshift.store.tables import jobs, notes
from twoshift.trigger_ports import Notice
from twoshift.types import JobKindName, JobState

__all__ = ["SqlJobs"]

_MOST_NOTES = 10_000  # of a job: the oldest go
_NOT_OVER = jobs.c.state.in_([str(state) for state in JobState if not state.is_over])
_KINDS = {JobState.DONE: "job.completed", JobState.FAILED: "job.failed", JobState.CANCELLED: "job.cancelled"}


class SqlJobs:
    """A JobStore; with a claim, of the server that has it."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        claim: SqlClaim | None = None,
        kinds: Collection[JobKindName] = (JobKindName.TABLE, JobKindName.REQUESTS),
    ) -> None:
        """Of these kinds; who writes to a folder, and how many an owner has open, is told of all."""
        self._database, self._clock = ClaimedDatabase(database, claim), clock
        self._noun = "stream" if JobKindName.STREAM in kinds else "job"
        self._ours = jobs.c.kind.in_([str(kind) for kind in kinds])

    def add(self, job: JobRecord) -> bool:
        """Remember it; False where its id is taken."""
        values = asdict(job) | {"state": str(job.state), "kind": str(job.kind)}

        def added(connection: Connection) -> bool:
            try:
                with connection.begin_nested():
                    connection.execute(insert(jobs).values(values))
            except IntegrityError:
                return False
            return True

        return self._database.changed(added)

    def get(self, job_id: str) -> JobRecord:
        """The job of that id; raises NotFound."""
        found = self._database.found(select(jobs).where(jobs.c.id == job_id, self._ours))
        if not found:
            raise NotFound(self._noun, job_id, f"the id of an existing {self._noun}")
        return _record(found[0])

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        """The newest first, of one owner or of all; `after` is the id of the last one that was seen."""
        wanted = select(jobs).where(self._ours).order_by(jobs.c.number.desc()).limit(limit)
        if owner is not None:
            wanted = wanted.where(jobs.c.owner == owner)
        if after is not None:  # of the same owner: nobody learns of another's jobs by their names
            seen = select(jobs.c.number).where(jobs.c.id == after)
            seen = seen if owner is None else seen.where(jobs.c.owner == owner)
            wanted = wanted.where(jobs.c.number < seen.scalar_subquery())
        return [_record(row) for row in self._database.found(wanted)]

    def unfinished(self) -> list[JobRecord]:
        """Those that are not over, oldest first."""
        wanted = select(jobs).where(_NOT_OVER, self._ours).order_by(jobs.c.number)
        return [_record(row) for row in self._database.found(wanted)]

    def waiting(self, most_of_one: int, besides: Collection[str] = ()) -> list[JobRecord]:
        """Of each owner those that come first by their windows: queued, or said to run. Oldest first."""
        first = (jobs.c.due_unix_s.nulls_last(), jobs.c.number)
        place = func.row_number().over(partition_by=jobs.c.owner, order_by=first).label("place")
        states = jobs.c.state.in_([str(JobState.QUEUED), str(JobState.RUNNING)])
        placed = select(jobs.c.number, place).where(states, self._ours, jobs.c.id.not_in(besides)).subquery()
        wanted = select(jobs).join(placed, placed.c.number == jobs.c.number).where(placed.c.place <= most_of_one)
        return [_record(row) for row in self._database.found(wanted.order_by(jobs.c.number))]

    def wait_for(self, owner: str, reason: str, besides: Collection[str] = ()) -> None:
        """Say of an owner's queued ones why they wait."""
        change = update(jobs).where(jobs.c.state == str(JobState.QUEUED), jobs.c.owner == owner, self._ours)
        change = change.where(jobs.c.reason != reason, jobs.c.id.not_in(besides))
        change = change.values(reason=reason, updated_unix_s=self._clock())
        self._database.changed(lambda connection: connection.execute(change))

    def of_output(self, output: str) -> JobRecord | None:
        """The one that is not over and writes there."""
        there = func.rtrim(jobs.c.settings["output"].as_string(), "/") == output.rstrip("/")
        found = self._database.found(select(jobs).where(_NOT_OVER, there).order_by(jobs.c.number).limit(1))
        return _record(found[0]) if found else None

    def overdue(self) -> int:
        """How many wait, or are paused, although their windows have ended."""
        waits = jobs.c.state.in_([str(JobState.QUEUED), str(JobState.PAUSED)])
        wanted = select(func.count().label("total")).where(waits, jobs.c.due_unix_s < self._clock())
        return int(self._database.found(wanted)[0].total)

    def open_jobs(self, owner: str) -> int:
        """How many of an owner's are not over."""
        wanted = select(func.count().label("total")).where(_NOT_OVER, jobs.c.owner == owner)
        return int(self._database.found(wanted)[0].total)

    def move(self, job_id: str, move: JobMove, reason: str = "") -> bool:
        """Another state, if it is in one of those before; whether it was. Its end is a notice."""
        change = update(jobs).where(jobs.c.id == job_id, jobs.c.state.in_([str(each) for each in move.before]))
        change = change.values(state=str(move.after), reason=reason, updated_unix_s=self._clock())

        def moved(connection: Connection) -> bool:
            if connection.execute(change).rowcount != 1:
                return False
            if move.after.is_over:
                found = _record(connection.execute(select(jobs).where(jobs.c.id == job_id)).one())
                if found.kind is JobKindName.TABLE:  # of a batch it is the batch's end that is told
                    post_notice(connection, _ended(found))
            return True

        return self._database.changed(moved)

    def progressed(self, progress: Mapping[str, dict[str, Any]]) -> None:
        """How far they are, by id."""
        change = update(jobs).where(jobs.c.id == bindparam("job"))
        change = change.values(progress=bindparam("told"), updated_unix_s=self._clock())
        values = [{"job": job_id, "told": told} for job_id, told in progress.items()]
        if values:
            self._database.changed(lambda connection: connection.execute(change, values))

    def note(self, job_id: str, text: str) -> None:
        """A line for its log."""

        def noted(connection: Connection) -> None:
            connection.execute(insert(notes).values(job_id=job_id, at_unix_s=self._clock(), text=text))
            kept = select(notes.c.number).where(notes.c.job_id == job_id).order_by(notes.c.number.desc())
            oldest = connection.execute(kept.offset(_MOST_NOTES).limit(1)).scalar()
            if oldest is not None:
                connection.execute(delete(notes).where(notes.c.job_id == job_id, notes.c.number <= oldest))

        self._database.changed(noted)

    def notes(self, job_id: str, limit: int = 1000) -> list[tuple[float, str]]:
        """Its log: times and lines, oldest first, the last ones."""
        found = self._database.found(
            select(notes).where(notes.c.job_id == job_id).order_by(notes.c.number.desc()).limit(limit)
        )
        return [(float(row.at_unix_s), str(row.text)) for row in reversed(found)]

    def close(self) -> None:
        """Let the database go."""
        self._database.close()


def _record(row: Any) -> JobRecord:
    plain = {each.name: getattr(row, each.name) for each in fields(JobRecord)}
    return JobRecord(**plain | {"state": JobState(row.state), "kind": JobKindName(row.kind)})


def _ended(job: JobRecord) -> Notice:
    """What those who asked for it are told."""
    told = {name: job.settings.get(name) for name in ("model", "output")}
    data = {"id": job.id, "object": "job", "state": str(job.state), "reason": job.reason, **told}
    data |= {"created_at": job.created_unix_s, "ended_at": job.updated_unix_s, "progress": job.progress}
    named = tuple(job.settings.get("notify", ()))
    return Notice(job.owner, _KINDS[job.state], job.id, data, job.updated_unix_s, named)
