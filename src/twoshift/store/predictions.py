"""What was predicted and what came, in a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, insert, select

from twoshift.prediction_ports import Prediction
from twoshift.store.database import Database
from twoshift.store.tables import predictions

__all__ = ["SqlPredictions"]

_MOST = 10_000  # that are kept


class SqlPredictions:
    """A PredictionStore."""

    def __init__(self, database: Database, most: int = _MOST) -> None:
        self._database, self._most = database, most

    def add(self, scored: Sequence[Prediction]) -> None:
        """Keep them; the oldest go."""

        def add(connection: Connection) -> None:
            connection.execute(insert(predictions), [asdict(each) for each in scored])
            kept = select(predictions.c.number).order_by(predictions.c.number.desc()).offset(self._most).limit(1)
            if (oldest := connection.execute(kept).scalar()) is not None:
                connection.execute(delete(predictions).where(predictions.c.number <= oldest))

        if scored:
            self._database.run(add)

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]:
        """The newest first, of one kind and one owner or of all."""
        wanted = select(predictions).order_by(predictions.c.number.desc()).limit(limit)
        if kind is not None:
            wanted = wanted.where(predictions.c.kind == kind)
        if owner is not None:
            wanted = wanted.where(predictions.c.owner == owner)
        found = self._database.read(lambda connection: connection.execute(wanted).all())
        return [Prediction(*(getattr(row, each.name) for each in fields(Prediction))) for row in found]
