"""Parts as Parquet; a part's stats are in its footer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from twoshift.batch.part_file import PartFile, Seal
from twoshift.batch.part_stats import PartStats
from twoshift.batch.result_columns import is_vector
from twoshift.batch.setting_values import codec_of
from twoshift.errors import InvalidInput

__all__ = ["ParquetSink", "parquet_writer"]

_METADATA = b"twoshift"
_ROW_GROUP_ROWS, _READ_ROWS = 64 << 10, 8192


class ParquetSink:
    """A Sink."""

    def check_kept(self, kept: pa.Schema) -> None:
        """Raises InvalidInput that names the column where Parquet has no place for one."""
        for field in kept:
            try:
                with pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])):
                    pass
            except pa.ArrowException:
                accepted = (
                    f"columns with types that Parquet supports; {field.name} has the type {field.type}: remove the "
                    "column, or use "
                )
                raise InvalidInput("keep", field.name, f"{accepted}--output-format jsonl") from None

    def unwritable(self, batch: pa.RecordBatch) -> dict[int, str]:
        """None: it holds every number."""
        return {}

    def open(self, path: Path, schema: pa.Schema, compression: str = "zstd") -> _ParquetPart:
        """A writer for a new part."""
        return _ParquetPart(path, schema, compression)

    def stats(self, file: Any, location: str) -> PartStats:
        """From the footer."""
        footer = pq.read_metadata(file)
        stats = msgspec.json.decode((footer.metadata or {})[_METADATA], type=PartStats)
        return msgspec.structs.replace(stats, rows=footer.num_rows)

    def first_rows(self, file: BinaryIO, schema: pa.Schema, rows: int) -> dict[str, list[Any]]:
        """By column."""
        batch = next(iter(pq.ParquetFile(file).iter_batches(max(1, rows))), None)
        return {} if batch is None else batch.to_pydict()

    def batches(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """In order."""
        for batch in pq.ParquetFile(file).iter_batches(_READ_ROWS, columns=schema.names):
            yield batch.select(schema.names).cast(schema)


class _ParquetPart:
    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self._file = PartFile(path)
        self._writer = parquet_writer(self._file, schema, compression)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch, row_group_size=_ROW_GROUP_ROWS)

    def finish(self, stats: PartStats) -> Seal:
        self._writer.add_key_value_metadata({_METADATA: msgspec.json.encode(stats)})
        self._writer.close()
        self._file.close()
        return self._file.seal()

    def discard(self) -> None:
        for each in (self._writer, self._file):
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):  # the disk may be full
                each.close()


def parquet_writer(file: Any, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer of parts into a file that is open."""
    codec, level = codec_of(compression)
    # Vectors of floats do not compress: trying costs more than writing them
    plain = {field.name: codec for field in schema if not pa.types.is_nested(field.type)}
    codecs: Any = plain | {f"{field.name}.list.element": "none" for field in schema if is_vector(field.type)}
    levels: Any = None if level is None else dict.fromkeys(plain, level)
    return pq.ParquetWriter(
        file,
        schema,
        compression=codecs or codec,
        compression_level=levels,
        use_dictionary=False,
        write_statistics=False,
    )
