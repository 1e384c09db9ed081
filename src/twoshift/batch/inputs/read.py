"""A piece of a file as batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from twoshift.batch.inputs.arrow_ipc import arrow_batches
from twoshift.batch.inputs.columns import WantedColumns
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.parquet import parquet_batches
from twoshift.batch.inputs.piece import READ_ERROR, Piece
from twoshift.batch.inputs.text import text_batches
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["read"]


def read(
    piece: Piece,
    file: InputFile,
    blobs: Blobs,
    columns: Sequence[str] | None,
    batch_rows: int,
    batch_bytes: int,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """The piece's rows in order, each exactly once: the columns (None: all) and READ_ERROR, in batches of bounded size.

    A row that cannot be read is null in every column and says why in READ_ERROR. `schema` holds the types that some
    columns will be cast to: these may be missing in a file and are null then. Raises InvalidInput where another column
    is missing, Broken where the file is damaged or no longer what it was.
    """
    if columns is not None and READ_ERROR in columns:
        raise InvalidInput("column", READ_ERROR, "another column name: this one is reserved")
    if file.size_bytes == 0:
        return iter(())
    wanted = WantedColumns(None if columns is None else tuple(columns), schema)
    reader = {"parquet": parquet_batches, "arrow": arrow_batches}.get(file.format, text_batches)
    return reader(piece, file, blobs, wanted, max(1, batch_rows), max(1, batch_bytes))
