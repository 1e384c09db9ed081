"""The rows of a part as a table of a store has them: each key once, with the job and the version that made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from twoshift.batch.plan import Plan
from twoshift.batch.result_columns import ERROR
from twoshift.batch.settings import JobSettings
from twoshift.batch.stores.table import JOB, OPTIONAL, ROW, VERSION, LoadedPart, StoreTable
from twoshift.errors import InvalidInput

__all__ = ["KeyedRows", "newest", "store_table", "version_of", "without_nan"]

_SHOWN_CHECKSUM = 12
_OURS = (ROW, JOB, VERSION)
_NO_NAN = "has a NaN or infinite value, which the store cannot hold; the output file has the value"


def store_table(settings: JobSettings, schema: pa.Schema, is_whole: bool = True) -> StoreTable:
    """The table for rows of that schema; raises InvalidInput where one of their columns has a name of ours."""
    if taken := next((name for name in schema.names if name in _OURS), None):
        raise InvalidInput(
            "keep", taken, f"a column name that Twoshift does not reserve in a store (reserved: {', '.join(_OURS)})"
        )
    key = settings.into_key or ROW
    own = [pa.field(name, pa.string()) for name in ((ROW, *sorted(OPTIONAL)) if key == ROW else sorted(OPTIONAL))]
    fields = [field.with_nullable(True) for field in schema]
    if ERROR not in schema.names:
        fields.append(pa.field(ERROR, pa.string()))
    return StoreTable(settings.into_table, key, pa.schema([*fields, *own]), settings.partition_by, is_whole)


def version_of(plan: Plan) -> str:
    """The model that made the rows: its name, and the beginning of its checksum."""
    return f"{plan.model.name} {plan.model.checksum.removeprefix('sha256:')[:_SHOWN_CHECKSUM]}"


@dataclass(slots=True)
class KeyedRows:
    """Rows of one part."""

    table: StoreTable
    job: str
    shard: int
    version: str
    batches: Iterable[pa.RecordBatch]
    seen: int = 0
    keyless: int = 0

    def chunks(self) -> Iterator[pa.Table]:
        """The rows with a key, in order; of several with the same key in a chunk the last one."""
        for batch in self.batches:
            yield self._chunk(pa.Table.from_batches([batch]))

    def whole(self) -> pa.Table:
        """The same in one chunk."""
        chunks = list(self.chunks())
        return newest(pa.concat_tables(chunks), self.table.key) if chunks else self.table.schema.empty_table()

    def loaded(self, new_rows: int) -> LoadedPart:
        """What the mark says, once all chunks are read."""
        return LoadedPart(self.seen, new_rows, self.keyless)

    def _chunk(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        if self.table.key == ROW:
            keys = [f"{self.job}-{self.shard:06d}-{self.seen + at:08d}" for at in range(count)]
            rows = rows.append_column(ROW, pa.array(keys, pa.string()))
        self.seen += count
        for name, value in ((JOB, self.job), (VERSION, self.version)):
            rows = rows.append_column(name, pa.repeat(value, count))
        keyed = rows.filter(rows.column(self.table.key).is_valid())
        self.keyless += count - keyed.num_rows
        return newest(keyed.select(self.table.schema.names), self.table.key)


def newest(rows: pa.Table, key: str) -> pa.Table:
    """Of rows with the same key the last one."""
    if len(rows.column(key).unique()) == rows.num_rows:
        return rows
    numbered = pa.table({"key": rows.column(key), "at": pa.array(np.arange(rows.num_rows))})
    last = numbered.group_by("key").aggregate([("at", "max")]).column("at_max")
    return rows.take(pa.array(np.sort(last.to_numpy())))


def without_nan(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Vectors with a NaN or an infinity become null, and their rows get an error: some stores cannot hold them."""
    errors: list[str | None] = []
    for name in columns:
        column = rows.column(name).combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        bad = np.zeros(len(column), bool)
        bad[valid] = ~np.isfinite(flat.astype(np.float32, copy=False)).reshape(-1, column.type.list_size).all(axis=1)
        if bad.any():
            nulled = column.take(pa.array(np.arange(len(column)), mask=bad))
            rows = rows.set_column(rows.schema.get_field_index(name), name, nulled)
            errors = errors or rows.column(ERROR).to_pylist()
            for at in np.flatnonzero(bad).tolist():
                errors[at] = errors[at] or f"{name} {_NO_NAN}"
    return rows.set_column(rows.schema.get_field_index(ERROR), ERROR, pa.array(errors, pa.string())) if errors else rows
