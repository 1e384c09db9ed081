"""A Lance dataset: a part is one commit, which says in its own properties which part it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from twoshift.batch.stores.columns import Column, check_columns
from twoshift.batch.stores.rows import KeyedRows
from twoshift.batch.stores.table import LoadedPart, StoreTable
from twoshift.errors import InvalidInput, TryLater, first_line
from twoshift.extras import needed

__all__ = ["LanceStore"]

_RETRY_S = 30.0
_RECENT = 64  # commits among which that of a part which is not in the list yet is looked for
_PART = "twoshift.part"  # property of a commit
_LIST = "twoshift.parts."  # key of the dataset's configuration: all parts of a job, by shard


class LanceStore:
    """A Store. The dataset is the table.

    The list of a job's parts is written after the commit of each; one that is missing there is found by its commit.
    """

    def __init__(self, place: str) -> None:
        self._lance, self._place = needed("lance", "lance", "--into", "into"), place.rstrip("/")

    def check(self, table: StoreTable) -> None:
        """Looks at the dataset's schema."""
        with self._told():
            dataset = self._dataset()
            if dataset is not None:
                self._check(dataset, table)

    def create(self, table: StoreTable) -> None:
        """An empty dataset."""
        with self._told():
            dataset = self._dataset()
            if dataset is None:
                self._lance.write_dataset(table.schema.empty_table(), self._place)
            else:
                self._check(dataset, table)

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """From the list, and from the last commits."""
        with self._told():
            dataset = self._dataset()
            return {} if dataset is None else self._loaded(dataset, job)

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """Merge all rows in one commit with the part's name on it."""
        with self._told():
            dataset = self._dataset()
            names = [name for name in table.schema.names if name in dataset.schema.names]
            rows = part.whole().select(names).cast(_typed(dataset.schema, names))
            merge = dataset.merge_insert([table.key]).when_matched_update_all().when_not_matched_insert_all()
            transaction, counts = merge.execute_uncommitted(rows)
            done = part.loaded(counts["num_inserted_rows"])
            transaction.transaction_properties = {
                _PART: f"{part.job} {part.shard} {msgspec.json.encode(done).decode()}"
            }
            dataset = self._lance.LanceDataset.commit(dataset, transaction)
            known = {**self._loaded(dataset, part.job), part.shard: done}
            dataset.update_config({f"{_LIST}{part.job}": msgspec.json.encode(known).decode()})
        return done

    def close(self) -> None:
        """Nothing is open."""

    def _dataset(self) -> Any:
        """None where there is none yet."""
        try:
            return self._lance.dataset(self._place)
        except (ValueError, OSError, FileNotFoundError) as error:
            if "not found" in str(error).lower():
                return None
            raise

    def _check(self, dataset: Any, table: StoreTable) -> None:
        found = {
            field.name: Column(str(field.type), None, getattr(field.type, "list_size", None), not field.nullable)
            for field in dataset.schema
        }
        check_columns(table, found, {})

    def _loaded(self, dataset: Any, job: str) -> dict[int, LoadedPart]:
        listed = dataset.config().get(f"{_LIST}{job}")
        found = {} if listed is None else msgspec.json.decode(listed, type=dict[int, LoadedPart])
        for transaction in dataset.get_transactions(_RECENT):
            word = (getattr(transaction, "transaction_properties", None) or {}).get(_PART, "")
            if word.startswith(f"{job} "):
                _, shard, counts = word.split(" ", 2)
                found.setdefault(int(shard), msgspec.json.decode(counts, type=LoadedPart))
        return found

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TryLater(f"{self._place}: {first_line(error)}", _RETRY_S) from error
        except (ValueError, RuntimeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                "into", self._place, f"a Lance dataset that accepts the rows ({first_line(error)})"
            ) from error


def _typed(schema: Any, names: list[str]) -> Any:
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in names])
