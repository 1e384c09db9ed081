"""A DuckDB file: rows are merged by their key and marked in one transaction."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from twoshift.batch.result_columns import is_vector
from twoshift.batch.stores.columns import Column, check_columns, plain_type
from twoshift.batch.stores.rows import KeyedRows
from twoshift.batch.stores.sql_file import forget_marks, marked_parts, quoted, write_mark
from twoshift.batch.stores.table import MARKS, LoadedPart, StoreTable
from twoshift.errors import InvalidInput, TryLater, first_line
from twoshift.extras import needed

__all__ = ["DuckdbStore"]

_RETRY_S = 5.0
_TYPES = {
    "bool": "BOOLEAN", "bytes": "BLOB", "date": "DATE", "decimal": "DECIMAL(38, 9)", "double": "DOUBLE",
    "float": "FLOAT", "int": "BIGINT", "nested": "JSON", "text": "VARCHAR", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ", "uint64": "UBIGINT",
}  # fmt: skip
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*")
_VECTOR = re.compile(r"(?:FLOAT|DOUBLE)\[(\d*)\]")


class DuckdbStore:
    """A Store. The file is open only while a part is loaded, so that others can read it in between."""

    def __init__(self, path: str) -> None:
        self._duckdb, self._path = needed("duckdb", "query", "--into", "into"), path

    def check(self, table: StoreTable) -> None:
        """Opens the file, and makes it where there is none."""
        with self._session() as session:
            self._check(session, table)

    def create(self, table: StoreTable) -> None:
        """Vectors are arrays of a fixed size, as its vss extension takes them."""
        with self._session() as session:
            _run(
                session,
                f"CREATE TABLE IF NOT EXISTS {MARKS} (job VARCHAR, table_name VARCHAR, shard INTEGER, rows BIGINT, "
                "new_rows BIGINT, keyless BIGINT, loaded_at TIMESTAMPTZ DEFAULT now())",
            )
            if self._check(session, table):
                return
            columns = ", ".join(f"{quoted(field.name)} {_type(field.type)}" for field in table.schema)
            _run(session, f"CREATE TABLE {quoted(table.name)} ({columns})")
            forget_marks(session, table)

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """From the marks."""
        with self._session() as session:
            return marked_parts(session, table, job)

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """One transaction; the file's lock keeps others out of it."""
        with self._session() as session:
            found = self._columns(session, table)
            names = [name for name in table.schema.names if name in found]
            before = _count(session, table)
            for chunk in part.chunks():
                session.register("part", chunk.select(names))
                _run(session, _merge(table, names, {name: found[name].type for name in names}))
                session.unregister("part")
            done = part.loaded(_count(session, table) - before)
            write_mark(session, table, part, done)
        return done

    def close(self) -> None:
        """Nothing is open."""

    def _check(self, session: Any, table: StoreTable) -> bool:
        found = self._columns(session, table)
        if found:
            check_columns(table, found, {field.name: _type(field.type) for field in table.schema})
        return bool(found)

    def _columns(self, session: Any, table: StoreTable) -> dict[str, Column]:
        ask = (
            "SELECT column_name, data_type, NOT is_nullable AND column_default IS NULL FROM duckdb_columns() "
            "WHERE table_name = ? AND schema_name = 'main' AND NOT internal"
        )
        return {
            name: Column(kind, _accepted(kind), _dimension(kind), filled)
            for name, kind, filled in _run(session, ask, [table.name])
        }

    @contextlib.contextmanager
    def _session(self) -> Iterator[Any]:
        """One transaction."""
        duckdb = self._duckdb
        try:
            with duckdb.connect(self._path) as session:
                _run(session, "BEGIN")
                yield session
                _run(session, "COMMIT")
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:  # locked by another process, or the disk
            raise TryLater(f"{self._path}: {first_line(error)}", _RETRY_S) from error
        except duckdb.Error as error:
            accepted = f"a database that accepts the rows ({first_line(error)})"
            raise InvalidInput("into", self._path, accepted) from error


def _run(session: Any, statement: str, values: list[Any] | None = None) -> list[Any]:
    return session.execute(statement, values or []).fetchall()


def _count(session: Any, table: StoreTable) -> int:
    return _run(session, f"SELECT count(*) FROM {quoted(table.name)}")[0][0]  # noqa: S608 - quoted


def _merge(table: StoreTable, names: list[str], types: Mapping[str, str]) -> str:
    """By key, whether the table has an index of it or not."""
    key, columns = quoted(table.key), [quoted(name) for name in names]
    values = {quoted(name): f"CAST(part.{quoted(name)} AS {kind})" for name, kind in types.items()}
    changed = ", ".join(f"{name} = {value}" for name, value in values.items() if name != key)
    return (  # all names are quoted
        f"MERGE INTO {quoted(table.name)} AS stored USING part ON stored.{key} = {values[key]} "  # noqa: S608
        f"WHEN MATCHED THEN UPDATE SET {changed} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(values.values())})"
    )


def _type(kind: pa.DataType) -> str:
    if is_vector(kind):
        return f"{'DOUBLE' if kind.value_type == pa.float64() else 'FLOAT'}[{kind.list_size}]"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({min(38, kind.precision)}, {kind.scale})"
    return plain_type(kind, _TYPES)


def _accepted(kind: str) -> frozenset[str] | None:
    if kind in ("VARCHAR", "JSON"):
        return None
    if _VECTOR.fullmatch(kind):
        return frozenset({"vector"})
    if _NUMBERS.fullmatch(kind):
        return frozenset({"number", "bool"})
    named = {"BOOLEAN": "bool", "BLOB": "bytes", "UUID": "text"}
    return frozenset({named.get(kind, "time" if kind.startswith(("DATE", "TIME")) else "nested")})


def _dimension(kind: str) -> int | None:
    found = _VECTOR.fullmatch(kind)
    return int(found[1]) if found and found[1] else None
