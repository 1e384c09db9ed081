"""Rows of JSON Lines: an object a line."""

from __future__ import annotations

import operator
from types import NoneType
from typing import Any

import msgspec
import pyarrow as pa

from twoshift.batch.inputs import records
from twoshift.batch.inputs.columns import WantedColumns, assembled
from twoshift.batch.inputs.piece import READ_ERROR
from twoshift.batch.inputs.records import RecordBlock

__all__ = ["JsonRows", "too_long"]

_TYPES: dict[frozenset[type], pa.DataType] = {
    frozenset({bool}): pa.bool_(),
    frozenset({int}): pa.int64(),
    frozenset({float}): pa.float64(),
    frozenset({int, float}): pa.float64(),
}


class JsonRows:
    """Lines to batches. A line that is no JSON object is a row with an error; nested values are JSON text."""

    def __init__(self, wanted: WantedColumns) -> None:
        self._wanted = wanted
        self._fields = _fields(wanted)  # of the struct that a line is decoded to
        kind = _struct(self._fields)
        self._is_struct = kind is not None
        self._decode = msgspec.json.Decoder(dict[str, Any] if kind is None else kind).decode

    def batch(self, block: RecordBlock) -> pa.RecordBatch:
        """The block's rows."""
        errors = {int(place): too_long() for place in block.too_long.nonzero()[0]}
        lines = block.rows()
        try:
            rows: list[Any] = [self._decode(line) for line in lines] if not errors else self._one_by_one(lines, errors)
        except (ValueError, RecursionError):
            rows = self._one_by_one(lines, errors)
        values = self._values(rows)
        arrays = {name: _array(column, self._wanted.is_text(name)) for name, column in values.items()}
        return assembled(arrays, len(rows), self._wanted, errors)

    def _one_by_one(self, lines: list[bytes], errors: dict[int, str]) -> list[Any]:
        empty = self._decode(b"{}")
        rows = [empty] * len(lines)
        for place, line in enumerate(lines):
            if place in errors:
                continue
            try:
                rows[place] = self._decode(line)
            except UnicodeDecodeError:
                errors[place] = "the line is not UTF-8"
            except (ValueError, RecursionError) as error:
                errors[place] = f"the line is not a JSON object: {error}"
        return rows

    def _values(self, rows: list[Any]) -> dict[str, list[Any]]:
        """Values by column, None where a row lacks one."""
        if self._is_struct:
            return {name: list(map(operator.attrgetter(slot), rows)) for slot, name in self._fields.items()}
        names = self._wanted.columns or dict.fromkeys(name for row in rows for name in row if name != READ_ERROR)
        return {name: [row.get(name) for row in rows] for name in names}


def too_long() -> str:
    """What is said of a row that is not read."""
    return f"the row is longer than {records.MOST_ROW_BYTES / 2**20:g} MiB"


def _fields(wanted: WantedColumns) -> dict[str, str]:
    return {f"c{place}": name for place, name in enumerate(dict.fromkeys(wanted.columns or ()))}


def _struct(fields: dict[str, str]) -> type[msgspec.Struct] | None:
    """A row of only the wanted fields: others are skipped without being made; None where their names forbid it."""
    if not fields or any(char in '"\\' or char < " " for name in fields.values() for char in name):
        return None
    return msgspec.defstruct("Row", [(slot, Any, None) for slot in fields], rename=fields, gc=False)


def _array(values: list[Any], as_text: bool) -> pa.Array:
    """Of the type that all values have, and else text."""
    kinds = frozenset(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values), pa.string() if as_text else pa.null())
    if kinds == {str}:
        return pa.array(values, pa.string())
    kind = _TYPES.get(kinds)
    if kind is not None and not as_text:
        try:
            return pa.array(values, kind)
        except (OverflowError, pa.ArrowInvalid):  # beyond 64 bits, or beyond what a double holds exactly
            pass
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
