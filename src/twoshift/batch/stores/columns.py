"""Whether a table that somebody else has made can take a job's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from twoshift.batch.result_columns import is_vector
from twoshift.batch.stores.table import OPTIONAL, StoreTable
from twoshift.errors import InvalidInput

__all__ = ["Column", "check_columns", "kind_of_values", "plain_type"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that is there."""

    type: str  # as the store writes it
    accepts: frozenset[str] | None = None  # kinds of values; None: any
    dimension: int | None = None  # of vectors; None: any, or none
    must_be_filled: bool = False


def kind_of_values(kind: pa.DataType) -> str:
    """What values of a type are: number, text, bool, time, bytes, vector or nested."""
    if is_vector(kind):
        return "vector"
    if pa.types.is_nested(kind):
        return "nested"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_temporal(kind):
        return "time"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytes"
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "number" if is_number else "text"


def check_columns(table: StoreTable, found: Mapping[str, Column], added: Mapping[str, str]) -> None:
    """Raises InvalidInput that names the first column that is missing or unfit; `added` are their types in a
    store with SQL.
    """
    for field in table.schema:
        column = found.get(field.name)
        if column is None:
            if field.name not in OPTIONAL:
                how = f" (ALTER TABLE {table.name} ADD COLUMN {field.name} {added[field.name]})" if added else ""
                _refuse(table, f"a table with the column {field.name}{how}")
            continue
        kind = kind_of_values(field.type)
        if column.accepts is not None and kind not in column.accepts:
            accepted = f"a table whose column {field.name} can hold {_plain(field.type)}"
            _refuse(table, f"{accepted}; this column has the type {column.type}")
        if kind == "vector" and column.dimension not in (None, field.type.list_size):
            length = f"vectors of {field.type.list_size:,} numbers, as the model returns them"
            _refuse(
                table, f"a table whose column {field.name} can hold {length}; this column has the type {column.type}"
            )
    unfilled = [name for name, each in found.items() if each.must_be_filled and name not in table.schema.names]
    if table.is_whole and unfilled:
        _refuse(table, f"a table whose column {unfilled[0]} may be NULL: the rows have no value for this column")


def _refuse(table: StoreTable, accepted: str) -> None:
    raise InvalidInput("into_table", table.name, f"the name of a new table, or {accepted}")


def _plain(kind: pa.DataType) -> str:
    return f"vectors of {kind.list_size:,} numbers" if is_vector(kind) else f"values of the type {kind}"


def plain_type(kind: pa.DataType, names: Mapping[str, str]) -> str:
    """The SQL type of a column that is not a vector, where `names` has those of our words for them."""
    if pa.types.is_integer(kind):
        return names["uint64" if kind == pa.uint64() else "int"]
    if pa.types.is_floating(kind):
        return names["double" if kind == pa.float64() else "float"]
    if pa.types.is_timestamp(kind):
        return names["timestamp" if kind.tz is None else "timestamptz"]
    if pa.types.is_date(kind):
        return names["date"]
    if pa.types.is_decimal(kind):
        return names["decimal"]
    return names[{"bool": "bool", "bytes": "bytes", "nested": "nested"}.get(kind_of_values(kind), "text")]
