"""A shard's output as it is written: kept columns, results, errors; and what it tells about itself."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from twoshift.batch.part_file import PartFile, Seal
from twoshift.batch.part_stats import PartStats
from twoshift.batch.requests.part import LinesPart, read_footer
from twoshift.errors import Broken, InvalidInput

__all__ = [
    "ERROR",
    "PartStats",
    "PartWriter",
    "check_kept",
    "not_finite",
    "open_part",
    "output_schema",
    "read_stats",
    "result_array",
]

ERROR = "error"
_METADATA = b"twoshift"
_ROW_GROUP_ROWS = 64 << 10


class PartWriter(Protocol):
    """Rows in, a file out."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self, stats: PartStats) -> Seal:
        """Close it whole, its stats inside where its format has a place for them."""
        ...

    def discard(self) -> None:
        """Close it as it is; it will be deleted."""
        ...


def open_part(path: Path, output_format: str, schema: pa.Schema) -> PartWriter:
    """A writer for a new file at `path`."""
    match output_format:
        case "parquet":
            return _ParquetPart(path, schema)
        case "lines":
            return LinesPart(path)
        case _:
            return _JsonPart(path)


class _ParquetPart:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        # Vectors of floats do not compress: trying costs more than writing them
        compression: Any = {
            field.name: "none" if _is_vector(field.type) else "zstd" for field in schema if not _is_nested(field.type)
        }
        compression |= {f"{field.name}.list.element": "none" for field in schema if _is_vector(field.type)}
        self._file = PartFile(path)
        self._writer = pq.ParquetWriter(
            self._file, schema, compression=compression or "zstd", use_dictionary=False, write_statistics=False
        )

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


class _JsonPart:
    """JSON lines: its stats are in its record alone."""

    def __init__(self, path: Path) -> None:
        self._file = PartFile(path)

    def write(self, batch: pa.RecordBatch) -> None:
        encode = msgspec.json.Encoder(enc_hook=str).encode
        for row in batch.to_pylist():
            self._file.write(encode(row) + b"\n")

    def finish(self, stats: PartStats) -> Seal:
        self._file.close()
        return self._file.seal()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def not_finite(batch: pa.RecordBatch) -> dict[int, str]:
    """Rows with a NaN or an infinity, and the column that has it."""
    found: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _is_nested(column.type) and not _is_vector(column.type):
            found.update((row, str(name)) for row, value in enumerate(column.to_pylist()) if _has_odd(value))
            continue
        width = column.type.list_size if _is_vector(column.type) else 1
        if not (pa.types.is_floating(column.type) or _is_vector(column.type)):
            continue
        flat = column.fill_null(0.0) if width == 1 else column.values.fill_null(0.0)
        bad = ~np.isfinite(flat.to_numpy(zero_copy_only=False).astype(np.float64)).reshape(-1, width).all(axis=1)
        found.update((int(row), str(name)) for row in np.flatnonzero(bad))
    return found


def _has_odd(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(_has_odd, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def read_stats(file: Any, location: str, output_format: str) -> PartStats:
    """What a part says about itself; raises Broken where it is no whole part of a job."""
    try:
        if output_format == "jsonl":
            return _counted(file, location)
        if output_format == "lines":
            return read_footer(file).stats
        footer = pq.read_metadata(file)
        stats = msgspec.json.decode((footer.metadata or {})[_METADATA], type=PartStats)
        return msgspec.structs.replace(stats, rows=footer.num_rows)
    except (pa.ArrowException, OSError, KeyError, AttributeError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise Broken(f"{location} is no whole part of a job: {_first_line(error)}") from error


def _counted(file: Any, location: str) -> PartStats:
    """JSON lines have no place for stats: what can be counted is."""
    rows = errors = 0
    for line in file:
        rows += 1
        errors += msgspec.json.decode(line).get(ERROR) is not None
    shard = int(re.findall(r"\d+", Path(location).name)[0])
    return PartStats(shard, rows, errors, 0, 0, 0.0, 0.0, "", {"unknown": errors} if errors else {})


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip().rstrip(".") or type(error).__name__


def check_kept(kept: pa.Schema, output_format: str) -> None:
    """Raises InvalidInput that names the column where Parquet has no place for one."""
    for field in kept if output_format == "parquet" else ():
        try:
            with pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])):
                pass
        except pa.ArrowException:
            accepted = f"columns that Parquet can hold, and {field.name} is a {field.type}: leave it out, or write "
            raise InvalidInput("keep", field.name, f"{accepted}--output-format jsonl") from None


def output_schema(kept: pa.Schema, results: Mapping[str, pa.DataType]) -> pa.Schema:
    """Kept columns, results, error; raises InvalidInput where two have one name."""
    taken = {*kept.names}
    for name in (*results, ERROR):
        if name in taken:
            raise InvalidInput("keep", name, f"a column that is not called as the result column {name!r}")
    fields = [*kept, *(pa.field(name, kind) for name, kind in results.items()), pa.field(ERROR, pa.string())]
    return pa.schema(fields)


def result_array(values: NDArray[Any], failed: NDArray[np.bool_]) -> pa.Array:
    """A result column as Arrow has it: vectors as fixed-size lists, null where the row has failed."""
    match values.ndim:
        case 1:
            if values.dtype.kind in "OUS":
                texts = [None if bad else _text(each) for each, bad in zip(values, failed, strict=True)]
                return pa.array(texts, pa.string())
            return pa.array(np.ma.getdata(values), mask=failed | np.ma.getmaskarray(values))
        case 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(failed))
        case _:
            nested = [None if bad else row.tolist() for row, bad in zip(values, failed, strict=True)]
            return pa.array(nested)


def _text(value: Any) -> str | None:
    """As UTF-8 can hold it: a lone surrogate must not cost the rows beside it."""
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


def _is_vector(kind: pa.DataType) -> bool:
    return pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)


def _is_nested(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind)
