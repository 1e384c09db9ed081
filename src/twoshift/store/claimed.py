"""Reading and changing a database that belongs to the server with the claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Select

from twoshift.store.claim import SqlClaim
from twoshift.store.database import Database

__all__ = ["ClaimedDatabase"]

_T = TypeVar("_T")


class ClaimedDatabase:
    """Everybody may read. Raises TryLater where the database does not answer."""

    def __init__(self, database: Database, claim: SqlClaim | None = None) -> None:
        self._database, self._claim = database, claim  # without a claim nobody else has it

    def found(self, wanted: Select[Any]) -> Sequence[Any]:
        """The rows."""
        return self._database.read(lambda connection: connection.execute(wanted).all())

    def changed(self, work: Callable[[Connection], _T]) -> _T:
        """What it gives, in a transaction; raises Elsewhere where another server has the claim."""

        def checked(connection: Connection) -> _T:
            if self._claim is not None:
                self._claim.check(connection)
            return work(connection)

        return self._database.run(checked)

    def close(self) -> None:
        """Let the database go."""
        self._database.close()
