"""Notices of what has ended, and their deliveries, in a database."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from twoshift.policy.retries import DELIVERIES
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.tables import deliveries, notices
from twoshift.trigger_ports import Delivery, Notice
from twoshift.types import DeliveryState

__all__ = ["SqlNotices", "post_notice"]

_MOST_AT_ONCE = 200
_KEPT = 10_000  # of what is over: the oldest go


def post_notice(made: Connection, notice: Notice) -> None:
    """As a part of the transaction in which it has ended."""
    made.execute(insert(notices).values(dataclasses.asdict(notice) | {"named": list(notice.named)}))


class SqlNotices:
    """A NoticeStore."""

    def __init__(self, database: ClaimedDatabase) -> None:
        self._database = database

    def post(self, notice: Notice) -> None:
        """Remember it."""
        self._database.changed(lambda made: post_notice(made, notice))

    def spread(self, deliveries_of: Callable[[Notice], Sequence[Delivery]], limit: int = 100) -> int:
        """The oldest notices become deliveries, both or neither; how many there were."""
        if not self._database.found(select(notices.c.number).limit(1)):
            return 0

        def spread(made: Connection) -> int:
            found = made.execute(select(notices).order_by(notices.c.number).limit(limit)).all()
            rows = [_values(each) for row in found for each in deliveries_of(_notice(row))]
            if rows:
                made.execute(insert(deliveries), rows)
            made.execute(delete(notices).where(notices.c.number.in_([row.number for row in found])))
            _forget(made)
            return len(found)

        return self._database.changed(spread)

    def due(self, now_unix_s: float, each: int) -> list[Delivery]:
        """Those to be tried now, oldest first, at most so many of a target."""
        # one that lies further ahead than any pause was put there by a clock that was wrong
        latest_s = now_unix_s + 2 * DELIVERIES.longest_s
        is_due = or_(deliveries.c.due_unix_s <= now_unix_s, deliveries.c.due_unix_s > latest_s)
        place = func.row_number().over(partition_by=deliveries.c.target, order_by=deliveries.c.due_unix_s)
        waiting = select(deliveries, place.label("place")).where(deliveries.c.state == "waiting", is_due).subquery()
        wanted = select(waiting).where(waiting.c.place <= each).order_by(waiting.c.due_unix_s).limit(_MOST_AT_ONCE)
        return [_delivery(row) for row in self._database.found(wanted)]

    def tried(self, delivery: Delivery) -> None:
        """As it is after an attempt."""
        change = update(deliveries).where(deliveries.c.id == delivery.id).values(_values(delivery))
        self._database.changed(lambda made: made.execute(change))

    def list(self, limit: int = 100, owner: str | None = None) -> list[Delivery]:
        """The newest first, of one owner or of all."""
        wanted = select(deliveries).order_by(deliveries.c.number.desc()).limit(limit)
        if owner is not None:
            wanted = wanted.where(deliveries.c.owner == owner)
        return [_delivery(row) for row in self._database.found(wanted)]


def _forget(made: Connection) -> None:
    is_over = deliveries.c.state != str(DeliveryState.WAITING)
    kept = select(deliveries.c.number).where(is_over).order_by(deliveries.c.number.desc()).offset(_KEPT).limit(1)
    oldest = made.execute(kept).scalar()
    if oldest is not None:
        made.execute(delete(deliveries).where(is_over, deliveries.c.number <= oldest))


def _values(delivery: Delivery) -> dict[str, Any]:
    return dataclasses.asdict(delivery) | {"state": str(delivery.state)}


def _notice(row: Any) -> Notice:
    return Notice(row.owner, row.kind, row.subject, row.data, row.at_unix_s, tuple(row.named))


def _delivery(row: Any) -> Delivery:
    found: dict[str, Any] = {field.name: row._mapping[field.name] for field in dataclasses.fields(Delivery)}
    found["state"] = DeliveryState(row.state)
    return Delivery(**found)
