"""PostgreSQL: rows are copied into a temporary table, upserted from there, and marked, in one transaction."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

import pyarrow as pa

from twoshift.batch.result_columns import is_vector
from twoshift.batch.stores.columns import Column, check_columns, plain_type
from twoshift.batch.stores.postgres_copy import COPY_BEGIN, COPY_END, copied_rows, transfer_type
from twoshift.batch.stores.rows import KeyedRows, without_nan
from twoshift.batch.stores.table import MARKS, LoadedPart, StoreTable
from twoshift.errors import InvalidInput, TryLater, first_line
from twoshift.extras import needed

__all__ = ["PostgresStore"]

_CONNECT_S = 10
_LIVELY = {"keepalives_idle": 30, "tcp_user_timeout": 60_000}  # a connection that is cut is noticed
_COPY_ROWS = 4096
_RETRY_S = 30.0
_LATER = ("08", "25006", "40", "53", "55", "57", "58")  # classes of errors that pass: gone, read-only, full, locked
_TYPES = {
    "bool": "boolean", "bytes": "bytea", "date": "date", "decimal": "numeric", "double": "double precision",
    "float": "real", "int": "bigint", "nested": "jsonb", "text": "text", "timestamp": "timestamp",
    "timestamptz": "timestamptz", "uint64": "numeric",
}  # fmt: skip
_ACCEPTS = {"N": ("number", "bool"), "B": ("bool",), "D": ("time",), "A": ("vector", "nested"), "E": ("text",)}
_NAMED = {
    "bytea": ("bytes",), "json": ("nested", "text", "vector"), "jsonb": ("nested", "text", "vector"), "uuid": ("text",),
    "vector": ("vector",), "halfvec": ("vector",),
}  # fmt: skip
_COLUMNS: LiteralString = """
SELECT attname, format_type(atttypid, atttypmod), typname, typcategory,
       attnotnull AND NOT atthasdef AND attidentity = ''
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_UNIQUE: LiteralString = """
SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND indexprs IS NULL GROUP BY indexrelid
"""


class PostgresStore:
    """A Store. Each call has a connection of its own: a job may run for longer than any connection lives."""

    def __init__(self, url: str, shown: str) -> None:
        self._psycopg = needed("psycopg", "postgres", "--into", "into")
        self._sql = needed("psycopg.sql", "postgres", "--into", "into")
        self._url, self._shown = url, shown

    def check(self, table: StoreTable) -> None:
        """Ask for the table's columns."""
        with self._session() as session:
            self._check(session, table)

    def create(self, table: StoreTable) -> None:
        """With `vector(n)` where pgvector is there or may be added, and arrays elsewhere."""
        with self._session() as session:
            if self._check(session, table):
                self._create_marks(session, table)
                return
            has_vectors = bool(table.vectors) and self._has_vectors(session)
            columns = [(field.name, _type(field.type, has_vectors)) for field in table.schema]
            listed = self._sql.SQL(", ").join(
                self._sql.SQL("{} {}").format(self._name(name), self._sql.SQL(kind)) for name, kind in columns
            )
            session.execute(
                self._sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
                    self._table(table), listed, self._name(table.key)
                )
            )
            self._create_marks(session, table)
            marks = self._sql.SQL("DELETE FROM {} WHERE table_name = %s").format(self._marks(table))
            session.execute(marks, [_plain_name(table)])

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """From the marks."""
        ask = "SELECT shard, rows, new_rows, keyless FROM {} WHERE job = %s AND table_name = %s"
        with self._session() as session:
            asked = session.execute(self._sql.SQL(ask).format(self._marks(table)), [job, _plain_name(table)])
            return {shard: LoadedPart(*counts) for shard, *counts in asked.fetchall()}

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """The mark comes first: whoever else loads the same part waits for it, and then finds it loaded."""
        place = [part.job, _plain_name(table), part.shard]
        with self._session() as session:
            begin = "INSERT INTO {} (job, table_name, shard) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            is_ours = session.execute(self._sql.SQL(begin).format(self._marks(table)), place).rowcount
            if is_ours:
                done = part.loaded(self._upserted(session, table, part))
                where = "WHERE job = %s AND table_name = %s AND shard = %s"
                end = f"UPDATE {{}} SET (rows, new_rows, keyless) = (%s, %s, %s) {where}"  # noqa: S608 - our own words
                counts = [done.rows, done.new_rows, done.keyless]
                session.execute(self._sql.SQL(end).format(self._marks(table)), [*counts, *place])
                return done
        return self.loaded(table, part.job)[part.shard]

    def close(self) -> None:
        """Nothing is open."""

    def _upserted(self, session: Any, table: StoreTable, part: KeyedRows) -> int:
        sql, found = self._sql, self._columns(session, table)
        names = [name for name in table.schema.names if name in found]
        schema = [table.schema.field(name) for name in names]
        sent = [transfer_type(field.type, found[field.name].type) for field in schema]
        listed = sql.SQL(", ").join(map(self._name, names))
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(self._name(name), sql.SQL(kind)) for name, kind in zip(names, sent, strict=True)
        )
        session.execute(sql.SQL("CREATE TEMP TABLE twoshift_rows ({}) ON COMMIT DROP").format(columns))
        upsert = sql.SQL(
            "WITH done AS (INSERT INTO {table} ({names}) SELECT {values} FROM twoshift_rows ON CONFLICT ({key}) "
            "DO UPDATE SET {set} RETURNING xmax = 0 AS is_new) SELECT count(*) FILTER (WHERE is_new) FROM done"
        ).format(
            table=self._table(table), names=listed, key=self._name(table.key),
            values=sql.SQL(", ").join(
                sql.SQL("{}::{}").format(self._name(name), sql.SQL(found[name].type)) for name in names
            ),
            set=sql.SQL(", ").join(
                sql.SQL("{0} = EXCLUDED.{0}").format(self._name(name)) for name in names if name != table.key
            ),
        )  # fmt: skip
        copy = sql.SQL("COPY twoshift_rows ({}) FROM STDIN (FORMAT BINARY)").format(listed)
        new_rows = 0
        strict = [name for name, kind in zip(names, sent, strict=True) if kind == "vector"]
        for chunk in part.chunks():
            _copy(session, copy, without_nan(chunk, strict).select(names), sent)
            new_rows += session.execute(upsert).fetchone()[0]
            session.execute("TRUNCATE twoshift_rows")
        return new_rows

    def _check(self, session: Any, table: StoreTable) -> bool:
        """Whether the table is there."""
        found = self._columns(session, table)
        if not found:
            return False
        check_columns(table, found, {field.name: _type(field.type, True) for field in table.schema})
        unique = [columns for (columns,) in session.execute(_UNIQUE, [self._table(table).as_string(session)])]
        if [table.key] not in unique:
            how = f"CREATE UNIQUE INDEX ON {table.name} ({table.key})"
            raise InvalidInput("into_table", table.name, f"a table whose column {table.key} is unique ({how})")
        return True

    def _columns(self, session: Any, table: StoreTable) -> dict[str, Column]:
        asked = session.execute(_COLUMNS, [self._table(table).as_string(session)])
        return {
            name: Column(kind, _accepted(word, category), _dimension(kind), filled)
            for name, kind, word, category, filled in asked.fetchall()
        }

    def _has_vectors(self, session: Any) -> bool:
        """Whether columns can be of pgvector's type; the extension is created where it is only available."""
        with contextlib.suppress(self._psycopg.Error), session.transaction():
            session.execute("CREATE EXTENSION IF NOT EXISTS vector")
            return True
        return False

    def _create_marks(self, session: Any, table: StoreTable) -> None:
        session.execute(
            self._sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (job text, table_name text, shard integer, rows bigint, "
                "new_rows bigint, keyless bigint, loaded_at timestamptz DEFAULT now(), "
                "PRIMARY KEY (job, table_name, shard))"
            ).format(self._marks(table))
        )

    def _name(self, *words: str) -> Any:
        return self._sql.Identifier(*words)

    def _table(self, table: StoreTable) -> Any:
        return self._name(*table.name.split("."))

    def _marks(self, table: StoreTable) -> Any:
        """Beside the table, in its schema."""
        return self._name(*table.name.split(".")[:-1], MARKS)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Any]:
        """One transaction."""
        try:
            with self._psycopg.connect(self._url, connect_timeout=_CONNECT_S, **_LIVELY) as session:
                session.execute("SET LOCAL lock_timeout = '60s'")
                yield session
        except self._psycopg.Error as error:
            state = error.sqlstate or ""
            is_gone = isinstance(error, self._psycopg.OperationalError) and not state
            if is_gone or state.startswith(_LATER):
                raise TryLater(f"{self._shown}: {first_line(error).strip()}", _RETRY_S) from error
            accepted = f"a database that accepts the rows ({first_line(error).strip()})"
            raise InvalidInput("into", self._shown, accepted) from error


def _copy(session: Any, copy: Any, rows: pa.Table, types: Sequence[str]) -> None:
    with session.cursor().copy(copy) as stream:
        stream.write(COPY_BEGIN)
        for batch in rows.to_batches(_COPY_ROWS):
            stream.write(copied_rows(pa.Table.from_batches([batch]), types))
        stream.write(COPY_END)


def _type(kind: pa.DataType, has_vectors: bool) -> str:
    if not is_vector(kind):
        return plain_type(kind, _TYPES)
    if has_vectors and kind.value_type != pa.float64():
        return f"vector({kind.list_size})"
    return "double precision[]" if kind.value_type == pa.float64() else "real[]"


def _accepted(word: str, category: str) -> frozenset[str] | None:
    """None: any kind of value can be written as a text."""
    if category == "S":
        return None
    return frozenset(_NAMED.get(word, _ACCEPTS.get(category, ())))


def _dimension(kind: str) -> int | None:
    found = re.fullmatch(r"(?:half)?vec(?:tor)?\((\d+)\)", kind)
    return int(found[1]) if found else None


def _plain_name(table: StoreTable) -> str:
    return table.name.rpartition(".")[2]
