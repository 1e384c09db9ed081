"""A SQLite file: rows are upserted by their key and marked in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from twoshift.batch.result_columns import is_vector
from twoshift.batch.stores.columns import Column, check_columns, kind_of_values, plain_type
from twoshift.batch.stores.rows import KeyedRows
from twoshift.batch.stores.sql_file import forget_marks, marked_parts, quoted, write_mark
from twoshift.batch.stores.table import MARKS, LoadedPart, StoreTable
from twoshift.errors import InvalidInput, TryLater

__all__ = ["SqliteStore"]

_BUSY_S = 30.0  # for others who write
_RETRY_S = 5.0
_LATER = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)
_TYPES = {
    "bool": "INTEGER", "bytes": "BLOB", "date": "TEXT", "decimal": "TEXT", "double": "REAL", "float": "REAL",
    "int": "INTEGER", "nested": "TEXT", "text": "TEXT", "timestamp": "TEXT", "timestamptz": "TEXT", "uint64": "TEXT",
}  # fmt: skip


class SqliteStore:
    """A Store. The file is open only while a part is loaded."""

    def __init__(self, path: str) -> None:
        self._path = path

    def check(self, table: StoreTable) -> None:
        """Opens the file, and makes it where there is none."""
        with self._session() as session:
            self._check(session, table)

    def create(self, table: StoreTable) -> None:
        """Vectors are blobs of float32, as sqlite-vec takes them."""
        with self._session() as session:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {MARKS} (job TEXT, table_name TEXT, shard INTEGER, rows INTEGER, "
                "new_rows INTEGER, keyless INTEGER, loaded_at TEXT DEFAULT CURRENT_TIMESTAMP, "
                "PRIMARY KEY (job, table_name, shard))"
            )
            if self._check(session, table):
                return
            columns = ", ".join(f"{quoted(field.name)} {_type(field.type)}" for field in table.schema)
            session.execute(f"CREATE TABLE {quoted(table.name)} ({columns}, PRIMARY KEY ({quoted(table.key)}))")
            forget_marks(session, table)

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """From the marks."""
        with self._session() as session:
            return marked_parts(session, table, job)

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """One transaction, begun with the file's lock."""
        with self._session() as session:
            found = self._columns(session, table)
            names = [name for name in table.schema.names if name in found]
            before = _count(session, table)
            for chunk in part.chunks():
                values = zip(*(_values(chunk.column(name).combine_chunks()) for name in names), strict=True)
                session.executemany(_upsert(table, names), values)
            done = part.loaded(_count(session, table) - before)
            write_mark(session, table, part, done)
        return done

    def close(self) -> None:
        """Nothing is open."""

    def _check(self, session: sqlite3.Connection, table: StoreTable) -> bool:
        found = self._columns(session, table)
        if not found:
            return False
        check_columns(table, found, {field.name: _type(field.type) for field in table.schema})
        indexes = session.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', [table.name])
        ask = "SELECT name FROM pragma_index_info(?)"
        unique = [[name for (name,) in session.execute(ask, index)] for index in indexes.fetchall()]
        primary = session.execute("SELECT name FROM pragma_table_info(?) WHERE pk", [table.name]).fetchall()
        if [table.key] not in unique and primary != [(table.key,)]:
            how = f"CREATE UNIQUE INDEX by_{table.key} ON {table.name} ({table.key})"
            raise InvalidInput("into_table", table.name, f"a table whose column {table.key} is unique ({how})")
        return True

    def _columns(self, session: sqlite3.Connection, table: StoreTable) -> dict[str, Column]:
        """A column takes any value, whatever its type."""
        ask = 'SELECT name, type, "notnull" AND dflt_value IS NULL FROM pragma_table_info(?)'
        return {
            name: Column(kind, must_be_filled=bool(filled)) for name, kind, filled in session.execute(ask, [table.name])
        }

    @contextlib.contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)) as session:
                session.execute("BEGIN IMMEDIATE")
                yield session
                session.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _LATER:
                raise TryLater(f"{self._path}: {error}", _RETRY_S) from error
            raise InvalidInput("into", self._path, f"a database that accepts the rows ({error})") from error


def _count(session: sqlite3.Connection, table: StoreTable) -> int:
    return session.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()[0]  # noqa: S608 - quoted


def _upsert(table: StoreTable, names: list[str]) -> str:
    columns = [quoted(name) for name in names]
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name != quoted(table.key))
    return (
        f"INSERT INTO {quoted(table.name)} ({', '.join(columns)}) VALUES ({', '.join('?' * len(names))}) "  # noqa: S608
        f"ON CONFLICT ({quoted(table.key)}) DO UPDATE SET {changed}"
    )


def _type(kind: pa.DataType) -> str:
    return "BLOB" if is_vector(kind) else plain_type(kind, _TYPES)


def _values(column: Any) -> list[Any]:
    """As sqlite3 takes them."""
    if is_vector(column.type):
        return _blobs(column)
    encode: Callable[[Any], Any] = {"nested": _json, "time": str}.get(kind_of_values(column.type), lambda each: each)
    if pa.types.is_decimal(column.type) or column.type == pa.uint64():
        encode = str
    return [None if each is None else encode(each) for each in column.to_pylist()]


def _blobs(column: Any) -> list[bytes | None]:
    size = column.type.list_size
    data = memoryview(column.flatten().to_numpy(zero_copy_only=False).astype("<f4", copy=False).tobytes())
    places = np.cumsum(valid := column.is_valid().to_numpy(zero_copy_only=False)) - 1
    step = 4 * size
    return [
        bytes(data[at * step : (at + 1) * step]) if there else None
        for at, there in zip(places.tolist(), valid, strict=True)
    ]


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
