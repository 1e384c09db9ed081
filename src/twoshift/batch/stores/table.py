"""The table that a job's rows go into, and what a mark says of a part."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from twoshift.batch.result_columns import is_vector
from twoshift.decodable import decodable

__all__ = ["JOB", "MARKS", "OPTIONAL", "ROW", "VERSION", "LoadedPart", "StoreTable"]

JOB, VERSION = "twoshift_job", "twoshift_version"  # which job and which version of the model made a row
OPTIONAL = frozenset({JOB, VERSION})  # that a table which somebody else has made need not have
ROW = "twoshift_row"  # the key of rows that have none of their own
MARKS = "_twoshift_parts"  # the table that says which parts are loaded


@decodable
class LoadedPart(msgspec.Struct, frozen=True):
    """What a mark says of a part."""

    rows: int  # of the part
    new_rows: int  # that were not in the table; the others have replaced some
    keyless: int  # rows that have no key: they are in the part alone


@dataclass(frozen=True, slots=True)
class StoreTable:
    """The table of a store, and its columns as the parts have them."""

    name: str
    key: str
    schema: pa.Schema
    partition_by: str | None = None  # of files: the column by whose values they are divided
    is_whole: bool = True  # False: the columns of the model's results are not known yet

    @property
    def vectors(self) -> tuple[str, ...]:
        """Columns with a vector in each row."""
        return tuple(field.name for field in self.schema if is_vector(field.type))
