"""Wanted columns: found in a file, checked, and put together as a batch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from twoshift.batch.inputs.piece import READ_ERROR
from twoshift.errors import InvalidInput

__all__ = ["WantedColumns", "assembled", "bounded_batches", "joined", "missing_column", "with_valid_texts"]

_NAMED_COLUMNS = 20


@dataclass(frozen=True, slots=True)
class WantedColumns:
    """What a reader is asked for: columns (None: all), and the types that some of them will be cast to."""

    columns: tuple[str, ...] | None
    schema: pa.Schema | None = None  # a column of it that a file lacks is null there

    def is_optional(self, name: str) -> bool:
        """Whether a file may lack it."""
        return self.schema is not None and name in self.schema.names

    def is_text(self, name: str) -> bool:
        """Whether it will be a string, so that a number should come as it is written."""
        return (
            self.schema is not None and name in self.schema.names and pa.types.is_string(self.schema.field(name).type)
        )

    def among(self, names: Sequence[str], location: str) -> list[str]:
        """Those of a file's columns that are wanted; raises InvalidInput where one is missing or not the only one."""
        known = set(names)
        columns = (
            [name for name in dict.fromkeys(names) if name != READ_ERROR] if self.columns is None else self.columns
        )
        for name in columns:
            if name not in known and not self.is_optional(name):
                raise missing_column(name, names, location)
            if len(known) < len(names) and names.count(name) > 1:
                accepted = f"a column name that occurs once; {location} has several columns with this name"
                raise InvalidInput("column", name, accepted)
        return [name for name in columns if name in known]


def missing_column(name: str, names: Sequence[str], location: str) -> InvalidInput:
    """Says which columns there are, and which was probably meant."""
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    more = f" and {len(names) - _NAMED_COLUMNS} more" if len(names) > _NAMED_COLUMNS else ""
    return InvalidInput("column", name, f"a column of {location} ({', '.join(names[:_NAMED_COLUMNS])}{more}){hint}")


def assembled(arrays: dict[str, pa.Array], rows: int, wanted: WantedColumns, errors: dict[int, str]) -> pa.RecordBatch:
    """One batch: the wanted columns in order, and last the errors; what is not valid UTF-8 is an error by now too."""
    names = [*arrays] if wanted.columns is None else [*dict.fromkeys(wanted.columns)]
    columns = {name: with_valid_texts(name, arrays[name], errors) for name in names if name in arrays}
    for name in names:
        if name not in columns:
            kind = (
                wanted.schema.field(name).type if wanted.schema is not None and wanted.is_optional(name) else pa.null()
            )
            columns[name] = pa.nulls(rows, kind)
    told = pa.nulls(rows, pa.string()) if not errors else pa.array([errors.get(k) for k in range(rows)], pa.string())
    return pa.RecordBatch.from_arrays([*(columns[name] for name in names), told], [*names, READ_ERROR])


def with_valid_texts(name: str, column: pa.Array, errors: dict[int, str]) -> pa.Array:
    """Plain values for dictionaries; a text that is not UTF-8 becomes null and its row an error."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        bad = [place for place in range(len(column)) if not _is_valid(column.slice(place, 1))]
        for place in bad:
            told = f"column {name}: the value is not valid UTF-8"
            errors[place] = f"{errors[place]}; {told}" if place in errors else told
        mask = np.zeros(len(column), np.bool_)
        mask[bad] = True
        return column.take(pa.array(np.arange(len(column)), mask=mask))
    return column


def _is_valid(value: pa.Array) -> bool:
    try:
        value.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def bounded_batches(batches: Iterator[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are as full as they may be; a row that is larger comes by itself."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in (part for whole in batches for part in _halved(whole, most_rows, most_bytes)):
        if held and (rows + batch.num_rows > most_rows or size + batch.nbytes > most_bytes):
            yield joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield joined(held)


def _halved(batch: pa.RecordBatch, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > most_rows:
        for start in range(0, batch.num_rows, most_rows):
            yield from _halved(batch.slice(start, most_rows), most_rows, most_bytes)
    elif batch.num_rows > 1 and batch.nbytes > most_bytes:
        half = batch.num_rows // 2
        for part in (batch.slice(0, half), batch.slice(half)):
            yield from _halved(part, most_rows, most_bytes)
    elif batch.num_rows:
        yield batch


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all their rows; a single one is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
