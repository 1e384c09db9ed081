"""Schedules and their runs in a database."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.tables import jobs, schedule_runs, schedules
from twoshift.trigger_ports import ScheduledRun, ScheduleRecord
from twoshift.types import RunState

__all__ = ["SqlSchedules"]

_MOST_RUNS = 1000  # of a schedule: the oldest go


class SqlSchedules:
    """A ScheduleStore."""

    def __init__(self, database: ClaimedDatabase) -> None:
        self._database = database

    def add(self, schedule: ScheduleRecord) -> bool:
        """Remember it; False where its owner has one of that name."""
        return self._database.changed(lambda made: _inserted(made, schedules, dataclasses.asdict(schedule)))

    def all(self, owner: str | None = None) -> list[ScheduleRecord]:
        """Those of an owner or of all, by name."""
        wanted = select(schedules).order_by(schedules.c.name, schedules.c.owner)
        if owner is not None:
            wanted = wanted.where(schedules.c.owner == owner)
        return [ScheduleRecord(**row._mapping) for row in self._database.found(wanted)]

    def change(self, schedule_id: str, **values: Any) -> None:
        """Some of its fields."""
        change = update(schedules).where(schedules.c.id == schedule_id).values(**values)
        self._database.changed(lambda made: made.execute(change))

    def remove(self, schedule_id: str) -> None:
        """It and its runs, not their jobs."""

        def removed(made: Connection) -> None:
            made.execute(delete(schedule_runs).where(schedule_runs.c.schedule_id == schedule_id))
            made.execute(delete(schedules).where(schedules.c.id == schedule_id))

        self._database.changed(removed)

    def decide(self, run: ScheduledRun, **values: Any) -> bool:
        """A run, and fields of its schedule, both or neither; False where there was a run for its key already."""

        def decided(made: Connection) -> bool:
            if values:
                made.execute(update(schedules).where(schedules.c.id == run.schedule_id).values(**values))
            row = dataclasses.asdict(run) | {"state": str(run.state)}
            del row["job_state"]
            is_new = _inserted(made, schedule_runs, row)
            _forget(made, run.schedule_id)
            return is_new

        return self._database.changed(decided)

    def settle(self, run_id: str, state: RunState, reason: str | None = None) -> None:
        """What has become of a run, and why, where that is new."""
        change = update(schedule_runs).where(schedule_runs.c.id == run_id).values(state=str(state))
        change = change if reason is None else change.values(reason=reason)
        self._database.changed(lambda made: made.execute(change))

    def runs(self, schedule_id: str, limit: int = 100) -> list[ScheduledRun]:
        """The newest first."""
        wanted = _with_jobs().where(schedule_runs.c.schedule_id == schedule_id)
        return [_run(row) for row in self._database.found(wanted.order_by(schedule_runs.c.number.desc()).limit(limit))]

    def waiting(self) -> list[ScheduledRun]:
        """Those that are decided on and have no job yet, oldest first."""
        wanted = _with_jobs().where(schedule_runs.c.state == str(RunState.WAITING))
        return [_run(row) for row in self._database.found(wanted.order_by(schedule_runs.c.number))]


def _with_jobs() -> Select[Any]:
    joined = schedule_runs.outerjoin(jobs, jobs.c.id == schedule_runs.c.id)
    return select(schedule_runs, jobs.c.state.label("job_state")).select_from(joined)


def _run(row: Any) -> ScheduledRun:
    values: dict[str, Any] = dict(row._mapping)
    del values["number"]
    values["state"] = RunState(row.state)
    return ScheduledRun(**values)


def _inserted(made: Connection, table: Any, values: dict[str, Any]) -> bool:
    try:
        with made.begin_nested():
            made.execute(insert(table).values(values))
    except IntegrityError:
        return False
    return True


def _forget(made: Connection, schedule_id: str) -> None:
    of_it = schedule_runs.c.schedule_id == schedule_id
    kept = select(schedule_runs.c.number).where(of_it).order_by(schedule_runs.c.number.desc()).offset(_MOST_RUNS)
    oldest = made.execute(kept.limit(1)).scalar()
    if oldest is not None:
        is_over = schedule_runs.c.state != str(RunState.WAITING)
        made.execute(delete(schedule_runs).where(of_it, schedule_runs.c.number <= oldest, is_over))
