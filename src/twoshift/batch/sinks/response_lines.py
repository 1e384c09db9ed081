"""A part of a batch: lines of results, then lines of errors, and last a line that says how many bytes each has."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from twoshift.batch.part_file import PartFile, Seal
from twoshift.batch.part_stats import PartStats
from twoshift.decodable import decodable

__all__ = ["LINES", "Footer", "ResponseLinesSink", "read_footer"]

_FOOTER_BYTES = 1 << 20
LINES = pa.schema([pa.field("line", pa.binary()), pa.field("error", pa.string())])  # the columns of a part


@decodable
class Footer(msgspec.Struct, frozen=True):
    """The last line of a part."""

    output_bytes: int
    error_bytes: int
    stats: PartStats


class ResponseLinesSink:
    """A Sink for batches of LINES: each row is a line already."""

    def check_kept(self, kept: pa.Schema) -> None:
        """Nothing of the input is kept."""

    def unwritable(self, batch: pa.RecordBatch) -> dict[int, str]:
        """None: an answer that cannot be told is an error's line."""
        return {}

    def open(self, path: Path, schema: pa.Schema, compression: str = "zstd") -> _LinesPart:
        """A writer for a new part."""
        return _LinesPart(path)

    def stats(self, file: Any, location: str) -> PartStats:
        """From the last line."""
        return read_footer(file).stats

    def first_rows(self, file: BinaryIO, schema: pa.Schema, rows: int) -> dict[str, list[Any]]:
        """None: replies have no columns."""
        return {}

    def batches(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """None, for the same reason."""
        return iter(())


class _LinesPart:
    """Errors lie in a file of their own until all results are written."""

    def __init__(self, path: Path) -> None:
        self._errors_path = path.with_name(f"{path.name}.errors")
        self._file, self._errors = PartFile(path), self._errors_path.open("w+b")

    def write(self, batch: pa.RecordBatch) -> None:
        """Each line to its side."""
        for line, error in zip(batch.column("line").to_pylist(), batch.column("error").to_pylist(), strict=True):
            (self._file if error is None else self._errors).write(line)

    def finish(self, stats: PartStats) -> Seal:
        """Put both together."""
        footer = Footer(self._file.tell(), self._errors.tell(), stats)
        self._errors.seek(0)
        shutil.copyfileobj(self._errors, self._file)
        self._file.write(msgspec.json.encode(footer) + b"\n")
        self._file.close()
        self._drop()
        return self._file.seal()

    def discard(self) -> None:
        """Close it as it is."""
        with contextlib.suppress(OSError):  # the disk may be full
            self._file.close()
        self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._errors.close()
        self._errors_path.unlink(missing_ok=True)


def read_footer(file: BinaryIO) -> Footer:
    """Raises DecodeError where it is no whole part."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _FOOTER_BYTES))
    return msgspec.json.decode(file.read().rstrip(b"\n").rpartition(b"\n")[2], type=Footer)
