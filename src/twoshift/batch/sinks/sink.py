"""The port of an output format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from twoshift.batch.part_file import Seal
from twoshift.batch.part_stats import PartStats

__all__ = ["PartWriter", "Sink"]


class PartWriter(Protocol):
    """Rows in, a file out."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self, stats: PartStats) -> Seal:
        """Close it whole, its stats inside where its format has a place for them."""
        ...

    def discard(self) -> None:
        """Close it as it is; it will be deleted."""
        ...


class Sink(Protocol):
    """An output format: what it can hold, how a part of it is written, and what can be read back from one."""

    def check_kept(self, kept: pa.Schema) -> None:
        """Raises InvalidInput that names a column of the input that it cannot hold."""
        ...

    def unwritable(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Rows with a value that it cannot hold, and why."""
        ...

    def open(self, path: Path, schema: pa.Schema, compression: str = "zstd") -> PartWriter:
        """A writer for a new part at `path`, compressed as `codec_of` reads it where its format has that."""
        ...

    def stats(self, file: Any, location: str) -> PartStats:
        """What a part says about itself; raises whatever its format's reader does where it is damaged."""
        ...

    def first_rows(self, file: BinaryIO, schema: pa.Schema, rows: int) -> dict[str, list[Any]]:
        """The first rows of a part, by column."""
        ...

    def batches(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a part, in order, with the columns of `schema`, which are some of its own."""
        ...
