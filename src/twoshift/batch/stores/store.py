"""The port of a store: a place outside the output folder that committed parts are loaded into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from twoshift.batch.stores.rows import KeyedRows
from twoshift.batch.stores.table import LoadedPart, StoreTable

__all__ = ["Store"]


class Store(Protocol):
    """Raises InvalidInput where a table cannot take the rows, TryLater where the store does not answer or is full."""

    def check(self, table: StoreTable) -> None:
        """Whether the store answers, and a table that is there already has these columns. Changes nothing."""
        ...

    def create(self, table: StoreTable) -> None:
        """Make the table and a place for the marks, unless they are there; a new table has no marks."""
        ...

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """The parts of a job that are in the table, by shard."""
        ...

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """Upsert the rows of a part by their key, one chunk after the other, and mark it; or do neither."""
        ...

    def close(self) -> None:
        """No more."""
        ...
