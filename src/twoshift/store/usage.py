"""The ledger in a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, func, select

from twoshift.store.database import Database, upsert_into
from twoshift.store.tables import usage_days
from twoshift.usage_ports import DeviceUsage

__all__ = ["SqlUsage"]

_WHOLE = ("rows", "tokens", "output_tokens")
_COUNTED = (*_WHOLE, "device_s", "harvested_s", "usd", "unpriced_s", "output_usd")


class SqlUsage:
    """A UsageStore: a row for each writer, day, tenant, lane, model and version."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, writer: str, counted: Sequence[DeviceUsage]) -> None:
        """What a writer has counted in all: in place of what it said before."""
        values = [{**asdict(each), "version": each.version or "1", "writer": writer} for each in counted]

        def put(connection: Connection) -> None:
            made = upsert_into(usage_days, connection)
            newer = {name: made.excluded[name] for name in _COUNTED}
            connection.execute(
                made.on_conflict_do_update(index_elements=usage_days.primary_key.columns, set_=newer), values
            )

        if values:
            self._database.run(put)

    def sums(self, first: str, last: str, group_by: Sequence[str], tenant: str | None = None) -> list[DeviceUsage]:
        """Over all writers, from the first day to the last, of one tenant or of all; in the order of the groups."""
        groups = [usage_days.c[name] for name in group_by]
        wanted = select(*groups, *(func.sum(usage_days.c[name]).label(name) for name in _COUNTED))
        wanted = wanted.where(usage_days.c.day.between(first, last)).group_by(*groups).order_by(*groups)
        if tenant is not None:
            wanted = wanted.where(usage_days.c.tenant == tenant)
        found = self._database.read(lambda connection: connection.execute(wanted).mappings().all())
        return [_usage(row) for row in found if row["rows"] is not None]  # a sum over nothing is none

    def spent(self, day: str, besides: str) -> dict[str, float]:
        """By tenant: the device seconds of a day that other writers than that one have counted."""
        of_day = (usage_days.c.day == day) & (usage_days.c.writer != besides)
        wanted = (
            select(usage_days.c.tenant, func.sum(usage_days.c.device_s)).where(of_day).group_by(usage_days.c.tenant)
        )
        found = self._database.read(lambda connection: connection.execute(wanted).all())
        return {str(tenant): float(device_s) for tenant, device_s in found}

    def close(self) -> None:
        """Let the database go."""
        self._database.close()


def _usage(row: Any) -> DeviceUsage:
    return DeviceUsage(**{**row, **{name: int(row[name]) for name in _WHOLE}})  # PostgreSQL's are decimals
