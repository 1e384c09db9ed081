"""What deployments did, a row for each minute of the last day."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, select

from twoshift.store.database import Database, upsert_into
from twoshift.store.tables import deployment_minutes

__all__ = ["SqlMinutes"]

_MINUTE_S = 60


class SqlMinutes:
    """Figures as mappings, by server: several may share a database."""

    def __init__(self, database: Database, server: str) -> None:
        self._database, self._server = database, server

    def add(self, minutes: Mapping[str, Mapping[str, Any]], at_unix_s: float, forget_before_unix_s: float) -> None:
        """Of each deployment; what is older than that is forgotten, whoever has written it."""
        minute = math.floor(at_unix_s / _MINUTE_S)
        rows = [
            {"server": self._server, "deployment": name, "minute": minute, "figures": dict(figures)}
            for name, figures in minutes.items()
        ]

        def add(connection: Connection) -> None:
            old = deployment_minutes.c.minute < forget_before_unix_s / _MINUTE_S
            connection.execute(delete(deployment_minutes).where(old))
            made = upsert_into(deployment_minutes, connection)
            keys = deployment_minutes.primary_key.columns
            if rows:
                connection.execute(
                    made.on_conflict_do_update(index_elements=keys, set_={"figures": made.excluded.figures}), rows
                )

        self._database.run(add)

    def since(self, deployment: str, unix_s: float) -> list[dict[str, Any]]:
        """In order, of this server."""
        table = deployment_minutes
        wanted = (
            select(table.c.figures)
            .where(table.c.server == self._server, table.c.deployment == deployment)
            .where(table.c.minute >= unix_s / _MINUTE_S)
            .order_by(table.c.minute)
        )
        return self._database.read(lambda connection: [*connection.execute(wanted).scalars()])
