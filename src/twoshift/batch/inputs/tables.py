"""Delta and Iceberg tables: the files of one version of a table, with what the table itself knows of their rows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from twoshift.batch.inputs.file import Constant, InputFile, InputTable
from twoshift.errors import InvalidInput, first_line
from twoshift.extras import needed
from twoshift.ports import Blobs

__all__ = ["constant_array", "constant_fields", "is_table", "table_files"]

DELTA, ICEBERG = "delta", "iceberg"
_LOG, _METADATA, _SUFFIX = "_delta_log", "metadata", ".metadata.json"
_HINT = "version-hint.text"
_ASKED_AT_ONCE = 16
# Of a Delta table: what says nothing of how its files are read, or is looked at here
_READ_FEATURES = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"}
_CONSTANT_TYPES = {
    str(kind): kind for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.date32(),
    )
}  # fmt: skip

BlobsFor = Callable[[str], Blobs]


def is_table(location: str, blobs: Blobs) -> bool:
    """Whether a location is a Delta table, or an Iceberg table or its metadata file."""
    return _kind(location, blobs) is not None


def table_files(location: str, blobs_for: BlobsFor, frozen: Mapping[str, InputTable]) -> list[InputFile]:
    """The data files of a table: of the version that a plan has frozen, or of its latest; raises InvalidInput.

    Refused is what plain Parquet files do not tell: deleted rows, and columns under other names.
    """
    blobs = blobs_for(location)
    kind, known = _kind(location, blobs), frozen.get(_key(location))
    found = _delta(location, known) if kind == DELTA else _iceberg(location, blobs, known)
    files = sorted(found, key=lambda file: file.location)
    if not files:
        raise InvalidInput("inputs", location, f"a table with rows; this {kind} table is empty")
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as asking:
        return list(asking.map(lambda file: _stated(file, blobs_for), files))


def constant_array(constant: Constant, rows: int) -> pa.Array:
    """A column that is the same in all rows of a file."""
    kind = _CONSTANT_TYPES[constant.type]
    value = pa.scalar(constant.value, pa.string()).cast(kind)
    return pa.repeat(value, rows)


def constant_fields(file: InputFile) -> list[pa.Field]:
    """The columns that a file's table has for it."""
    return [pa.field(each.name, _CONSTANT_TYPES[each.type]) for each in file.constants]


def _kind(location: str, blobs: Blobs) -> str | None:
    if location.endswith(_SUFFIX):
        return ICEBERG
    folder = location.rstrip("/")
    if any(name.endswith((".json", ".checkpoint.parquet")) for name in blobs.names(f"{folder}/{_LOG}")):
        return DELTA
    return ICEBERG if any(name.endswith(_SUFFIX) for name in blobs.names(f"{folder}/{_METADATA}")) else None


def _name(location: str) -> str:
    return location.rstrip("/")


def _key(location: str) -> str:
    """The same wherever the command is run."""
    return _name(location) if "://" in location else os.path.abspath(location)  # noqa: PTH100 - a name, not a file


def _stated(file: InputFile, blobs_for: BlobsFor) -> InputFile:
    blob = blobs_for(file.location).stat(file.location)
    if blob is None:
        assert file.table is not None  # noqa: S101 - files of tables come here
        accepted = (
            f"a file that still exists: a vacuum has removed this file of version {file.table.version} of the table; "
            "start a new job"
        )
        raise InvalidInput("inputs", file.location, accepted)
    return msgspec.structs.replace(file, size_bytes=blob.size_bytes, identity=blob.identity)


def _delta(location: str, frozen: InputTable | None) -> Iterator[InputFile]:
    deltalake = needed("deltalake", "delta", location, "inputs")
    try:
        table = deltalake.DeltaTable(_name(location), version=None if frozen is None else frozen.version)
        _check_delta(location, table)
        found = InputTable(_key(location), DELTA, table.version())
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        types = {field.name: str(field.type) for field in pa.schema(table.schema().to_arrow())}
        partitions = table.metadata().partition_columns
    except InvalidInput:
        raise
    except Exception as error:  # whatever the library raises
        raise _unreadable(location, DELTA, error) from error
    for action in actions:
        constants = tuple(_constant(location, name, types[name], action[f"partition.{name}"]) for name in partitions)
        yield InputFile(_below(location, action["path"]), 0, "", "parquet", constants=constants, table=found)


def _check_delta(location: str, table: Any) -> None:
    features = set(table.protocol().reader_features or ())
    if unknown := features - _READ_FEATURES:
        accepted = f"a Delta table without the feature {min(unknown)}, which Twoshift cannot read"
        raise InvalidInput("inputs", location, accepted)
    if (table.metadata().configuration or {}).get("delta.columnMapping.mode", "none") != "none":
        accepted = "a Delta table without column mapping: its files have other column names than the table"
        raise InvalidInput("inputs", location, accepted)
    if "deletionVectors" in features and _has_deleted_rows(table):
        accepted = "a Delta table without deletion vectors: rewrite its files first (REORG TABLE ... APPLY (PURGE))"
        raise InvalidInput("inputs", location, accepted)


def _has_deleted_rows(table: Any) -> bool:
    try:
        return any(batch.num_rows for batch in table.deletion_vectors())
    except Exception:  # there are some, and they cannot even be read
        return True


def _constant(location: str, name: str, kind: str, value: Any) -> Constant:
    if kind not in _CONSTANT_TYPES:
        accepted = f"a table whose partition columns are numbers, texts, dates or booleans; {name} is {kind}"
        raise InvalidInput("inputs", location, accepted)
    told = str(value).lower() if isinstance(value, bool) else str(value)
    return Constant(name, kind, None if value is None else told)


def _below(location: str, path: str) -> str:
    """A path of the log, which is quoted, as a location."""
    path = unquote(path)
    return _local(path) if "://" in path or path.startswith(("/", "file:")) else f"{_name(location)}/{path}"


def _local(uri: str) -> str:
    return re.sub(r"^file:(//)?", "", uri)


def _iceberg(location: str, blobs: Blobs, frozen: InputTable | None) -> Iterator[InputFile]:
    static = needed("pyiceberg.table", "iceberg", location, "inputs").StaticTable
    metadata = _latest(location, blobs) if frozen is None else frozen.metadata
    try:
        table = static.from_metadata(metadata)
        snapshot: int | None = table.metadata.current_snapshot_id if frozen is None else frozen.version
        tasks = [] if snapshot is None else list(table.scan(snapshot_id=snapshot).plan_files())
        _check_columns(location, table)
    except InvalidInput:
        raise
    except Exception as error:  # whatever the library raises
        raise _unreadable(location, ICEBERG, error) from error
    for task in tasks:
        if task.delete_files:
            accepted = "an Iceberg table without delete files: rewrite its data files first (rewrite_data_files)"
            raise InvalidInput("inputs", location, accepted)
        if str(task.file.file_format).rpartition(".")[2].lower() != "parquet":
            raise InvalidInput("inputs", task.file.file_path, "an Iceberg table of Parquet files")
        found = InputTable(_key(location), ICEBERG, snapshot or 0, _key(metadata))  # there are files: there is one
        yield InputFile(_local(task.file.file_path), 0, "", "parquet", table=found)


def _check_columns(location: str, table: Any) -> None:
    """Raises InvalidInput where a column was renamed or dropped: files go by their own names."""
    now = {(field.field_id, field.name) for field in table.schema().fields}
    past = {(field.field_id, field.name) for schema in table.metadata.schemas for field in schema.fields}
    if gone := past - now:
        accepted = (
            f"an Iceberg table whose columns were never renamed or dropped; the column {min(gone)[1]} was renamed or "
            "dropped: copy the rows to a new table"
        )
        raise InvalidInput("inputs", location, accepted)


def _latest(location: str, blobs: Blobs) -> str:
    if location.endswith(_SUFFIX):
        return location
    folder = f"{_name(location)}/{_METADATA}"
    names = sorted(name for name in blobs.names(folder) if name.endswith(_SUFFIX))
    if (hint := blobs.read(f"{folder}/{_HINT}")) is not None:
        told = hint.decode(errors="replace").strip()
        names = [name for name in names if name in (f"v{told}{_SUFFIX}", told, f"{told}{_SUFFIX}")]
    numbers = [int(re.sub(r"\D.*", "", name.removeprefix("v")) or 0) for name in names]
    last = [name for name, number in zip(names, numbers, strict=True) if number == max(numbers)]
    if len(last) != 1:
        accepted = (
            f"the table's metadata file (NAME{_SUFFIX}): the folder does not show which metadata file is the latest"
        )
        raise InvalidInput("inputs", location, accepted)
    return f"{folder}/{last[0]}"


def _unreadable(location: str, kind: str, error: Exception) -> InvalidInput:
    named = {DELTA: "a Delta table", ICEBERG: "an Iceberg table"}[kind]
    return InvalidInput("inputs", location, f"{named} that can be read ({first_line(error)})")
