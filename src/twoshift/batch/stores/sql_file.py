"""What a file that is a database says of the parts that it has; DuckDB and SQLite understand the same."""

from __future__ import annotations

from typing import Any

from twoshift.batch.stores.rows import KeyedRows
from twoshift.batch.stores.table import MARKS, LoadedPart, StoreTable

__all__ = ["forget_marks", "marked_parts", "quoted", "write_mark"]


def quoted(name: str) -> str:
    """A name as statements have it."""
    return '"' + name.replace('"', '""') + '"'


def marked_parts(session: Any, table: StoreTable, job: str) -> dict[int, LoadedPart]:
    """Those of a job that a table has."""
    ask = f"SELECT shard, rows, new_rows, keyless FROM {MARKS} WHERE job = ? AND table_name = ?"  # noqa: S608 - our own name
    found = session.execute(ask, [job, table.name]).fetchall()
    return {shard: LoadedPart(*counts) for shard, *counts in found}


def write_mark(session: Any, table: StoreTable, part: KeyedRows, done: LoadedPart) -> None:
    """The table has this part."""
    mark = f"INSERT INTO {MARKS} (job, table_name, shard, rows, new_rows, keyless) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
    session.execute(mark, [part.job, table.name, part.shard, done.rows, done.new_rows, done.keyless]).fetchall()


def forget_marks(session: Any, table: StoreTable) -> None:
    """A table that is made anew has no part."""
    session.execute(f"DELETE FROM {MARKS} WHERE table_name = ?", [table.name]).fetchall()  # noqa: S608 - our own name
