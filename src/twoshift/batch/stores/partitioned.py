"""A folder of Parquet files by the values of a column, in Hive's way: lang=de/<job>-000012.parquet.

The names of a part's files follow from the job and the shard, so that a load which is repeated writes the same files
again; the mark is the last.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa

from twoshift.batch.sinks.parquet import parquet_writer
from twoshift.batch.stores.rows import KeyedRows
from twoshift.batch.stores.table import MARKS, ROW, LoadedPart, StoreTable
from twoshift.durable import sync_directory
from twoshift.errors import InvalidInput, TryLater

__all__ = ["PartitionedStore"]

_MOST_VALUES = 1000  # of the column in one part: each is a file
_NULL = "__HIVE_DEFAULT_PARTITION__"
_RETRY_S = 5.0
_SCHEMA = "schema.json"


class PartitionedStore:
    """A Store. Rows are added and never replaced."""

    def __init__(self, place: str) -> None:
        self._folder = Path(place)

    def check(self, table: StoreTable) -> None:
        """Whether the column can be the name of a folder, and other rows here have the same columns."""
        column = _column(table)
        if not any(is_fit(table.schema.field(column).type) for is_fit in _FIT):
            kind = table.schema.field(column).type
            raise InvalidInput(
                "partition_by", column, f"a column of texts, whole numbers, booleans or dates; this column is {kind}"
            )
        stored = self._marks / _SCHEMA
        if table.is_whole and stored.exists() and msgspec.json.decode(stored.read_bytes()) != _described(table):
            accepted = (
                f"a new folder: the files in {self._folder} have other columns, or are partitioned by another column"
            )
            raise InvalidInput("into", str(self._folder), accepted)

    def create(self, table: StoreTable) -> None:
        """The folder, and what its columns are."""
        self.check(table)
        with self._told():
            self._marks.mkdir(parents=True, exist_ok=True)
            _write(self._marks / _SCHEMA, lambda file: file.write(msgspec.json.encode(_described(table))))

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """From the marks."""
        with self._told():
            found = sorted(self._marks.glob(f"{job}-*.json"))
            read = {int(path.stem.rpartition("-")[2]): path.read_bytes() for path in found}
        return {shard: msgspec.json.decode(data, type=LoadedPart) for shard, data in read.items()}

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """A file for each value, and then the mark."""
        column, name = _column(table), f"{part.job}-{part.shard:06d}"
        rows = part.whole()
        coded = rows.column(column).combine_chunks().dictionary_encode("encode")
        values, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        if len(values) > _MOST_VALUES:
            accepted = (
                f"a column with at most {_MOST_VALUES:,} different values in a part; the part of shard {part.shard} "
                f"has {len(values):,}"
            )
            raise InvalidInput("partition_by", column, accepted)
        plain = [each for each in rows.schema.names if each not in (column, ROW)]
        with self._told():
            for code, value in enumerate(values):
                chosen = rows.filter(pa.array(codes == code)).select(plain)
                _write(self._folder / _named(column, value) / f"{name}.parquet", _writes(chosen))
            done = part.loaded(rows.num_rows)
            _write(self._marks / f"{name}.json", lambda file: file.write(msgspec.json.encode(done)))
        return done

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _marks(self) -> Path:
        return self._folder / MARKS

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TryLater(f"{self._folder}: {error.strerror or error}", _RETRY_S) from error


_FIT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


def _column(table: StoreTable) -> str:
    if table.partition_by is None:
        raise InvalidInput("partition_by", None, "the column that partitions the folder of Parquet files")
    return table.partition_by


def _named(column: str, value: Any) -> str:
    """As Hive, Spark, Arrow and DuckDB read it."""
    text = _NULL if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{quote(column, safe='')}={quote(text, safe=' ')}"


def _described(table: StoreTable) -> dict[str, str]:
    return {"partition_by": _column(table), "columns": table.schema.to_string()}


def _writes(rows: pa.Table) -> Callable[[Any], object]:
    def write(file: Any) -> None:
        with parquet_writer(file, rows.schema, "zstd") as writer:
            writer.write_table(rows)

    return write


def _write(path: Path, write: Callable[[Any], object]) -> None:
    """All of a file or nothing, and for good."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f".{path.name}.{os.getpid()}.twoshift-tmp")
    try:
        with begun.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        begun.replace(path)
        sync_directory(path.parent)
    finally:
        begun.unlink(missing_ok=True)
