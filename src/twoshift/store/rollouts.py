"""Rollouts in a database. Each is led by one server: what another one would write is refused."""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from twoshift.errors import NotFound
from twoshift.known_process import has_ended, place_here
from twoshift.rollout_ports import FINAL, RolloutEvent, RolloutRecord, told_data
from twoshift.store.database import Database
from twoshift.store.database_clock import database_now
from twoshift.store.notices import post_notice
from twoshift.store.tables import rollout_events, rollouts
from twoshift.trigger_ports import Notice

__all__ = ["SqlRollouts"]

_LASTS_S = 15.0  # without a word from its leader, after which another server may lead
_MOST_EVENTS = 1000  # of a rollout: the oldest go
_FIELDS = (
    "id", "deployment", "configured", "stable", "candidate", "mode", "who", "settings", "state", "stage", "share",
    "paused", "reason", "created_unix_s", "updated_unix_s",
)  # fmt: skip


class SqlRollouts:
    """A RolloutStore, of one start of a server."""

    def __init__(self, database: Database) -> None:
        self._database, self._owner = database, uuid.uuid4().hex
        self._shown = f"{socket.gethostname()}, process {os.getpid()}"

    def add(self, record: RolloutRecord) -> bool:
        """Remember it; False where its deployment has one that is not over."""
        values = {name: getattr(record, name) for name in _FIELDS} | {
            "active": None if record.is_over else record.deployment, "asked": list(record.asked),
            "leader": "", "leader_shown": "", "leader_place": "", "leader_process": 0, "leader_seen_unix_s": 0.0,
        }  # fmt: skip

        def added(made: Connection) -> bool:
            try:
                with made.begin_nested():
                    made.execute(insert(rollouts).values(values))
            except IntegrityError:
                return False
            return True

        return self._database.run(added)

    def get(self, rollout_id: str) -> RolloutRecord:
        """Raises NotFound."""
        found = self._found(select(rollouts).where(rollouts.c.id == rollout_id))
        if not found:
            raise NotFound("rollout", rollout_id, "the id of a rollout; `twoshift rollouts list` shows all ids")
        return found[0]

    def list(self, limit: int = 100, deployment: str | None = None) -> list[RolloutRecord]:
        """The newest first."""
        wanted = select(rollouts).order_by(rollouts.c.number.desc()).limit(limit)
        return self._found(wanted if deployment is None else wanted.where(rollouts.c.deployment == deployment))

    def active(self) -> list[RolloutRecord]:
        """Those that are not over, oldest first."""
        return self._found(select(rollouts).where(rollouts.c.active.is_not(None)).order_by(rollouts.c.number))

    def last(self, deployment: str, configured: str) -> RolloutRecord | None:
        """The newest one of a deployment whose settings named that model."""
        of_it = (rollouts.c.deployment == deployment) & (rollouts.c.configured == configured)
        found = self._found(select(rollouts).where(of_it).order_by(rollouts.c.number.desc()).limit(1))
        return found[0] if found else None

    def ask(self, rollout_id: str, what: str) -> bool:
        """For its leader to hear; False where it is over."""

        def asked(made: Connection) -> bool:
            wanted = select(rollouts.c.asked).where(_active(rollout_id)).with_for_update()
            found = made.execute(wanted).first()
            if found is None:
                return False
            made.execute(update(rollouts).where(_active(rollout_id)).values(asked=[*found.asked, what]))
            return True

        return self._database.run(asked)

    def lead(self, rollout_id: str) -> bool:
        """Whether this server judges it from now on, or still does."""
        return self._database.run(lambda made: self._lead(made, rollout_id))

    def save(self, rollout_id: str, event: RolloutEvent | None = None, heard: int = 0, **values: Any) -> bool:
        """Some of its fields, with what was decided; False where another server leads it, or it is over."""

        def saved(made: Connection) -> bool:
            mine = _active(rollout_id) & (rollouts.c.leader == self._owner)
            found = made.execute(select(rollouts).where(mine).with_for_update()).first()
            if found is None:
                return False
            is_over = values.get("stage") in FINAL
            more = {"active": None} if is_over else {}
            made.execute(
                update(rollouts)
                .where(mine)
                .values(**values, **more, asked=found.asked[heard:], updated_unix_s=time.time())
            )
            if event is not None:
                _write(made, rollout_id, event)
            if is_over:
                ended = _record(made.execute(select(rollouts).where(rollouts.c.id == rollout_id)).one())
                post_notice(made, Notice("", f"rollout.{ended.stage}", ended.id, dict(told_data(ended)), time.time()))
            return True

        return self._database.run(saved)

    def events(self, rollout_id: str) -> list[RolloutEvent]:
        """What was decided, oldest first."""
        wanted = select(rollout_events).where(rollout_events.c.rollout_id == rollout_id)
        found = self._database.read(lambda made: made.execute(wanted.order_by(rollout_events.c.number)).all())
        return [RolloutEvent(row.at_unix_s, row.text, tuple(row.figures)) for row in found]

    def release(self) -> None:
        """Others may lead at once what this server has led."""
        change = update(rollouts).where(rollouts.c.leader == self._owner).values(leader="")
        self._database.run(lambda made: made.execute(change))

    def _lead(self, made: Connection, rollout_id: str) -> bool:
        now = database_now(made)
        wanted = select(rollouts, now.label("now")).where(_active(rollout_id)).with_for_update()
        found = made.execute(wanted).first()
        if found is None:
            return False
        if found.leader not in ("", self._owner):
            is_silent = found.now - found.leader_seen_unix_s > _LASTS_S
            if not is_silent and not has_ended(found.leader_place, found.leader_process):
                return False
        made.execute(
            update(rollouts)
            .where(_active(rollout_id), rollouts.c.leader == found.leader)
            .values(
                leader=self._owner, leader_shown=self._shown, leader_place=place_here(), leader_process=os.getpid(),
                leader_seen_unix_s=now,
            )
        )  # fmt: skip
        return True

    def _found(self, wanted: Any) -> list[RolloutRecord]:
        return [_record(row) for row in self._database.read(lambda made: made.execute(wanted).all())]


def _active(rollout_id: str) -> Any:
    return (rollouts.c.id == rollout_id) & rollouts.c.active.is_not(None)


def _write(made: Connection, rollout_id: str, event: RolloutEvent) -> None:
    row = {"rollout_id": rollout_id, "at_unix_s": event.at_unix_s, "text": event.text, "figures": list(event.figures)}
    made.execute(insert(rollout_events).values(row))
    of_it = rollout_events.c.rollout_id == rollout_id
    kept = select(rollout_events.c.number).where(of_it).order_by(rollout_events.c.number.desc()).offset(_MOST_EVENTS)
    oldest = made.execute(kept.limit(1)).scalar()
    if oldest is not None:
        made.execute(delete(rollout_events).where(of_it, rollout_events.c.number <= oldest))


def _record(row: Any) -> RolloutRecord:
    values = {name: row._mapping[name] for name in _FIELDS}
    return RolloutRecord(**values, asked=tuple(row.asked), leader=row.leader_shown if row.leader else "")
