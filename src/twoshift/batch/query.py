"""A query over the input: its result is a file of the job's own, made once, and read in place of the input."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from twoshift.batch.inputs import InputFile
from twoshift.batch.settings import JobSettings
from twoshift.errors import Broken, InvalidInput, first_line
from twoshift.extras import needed
from twoshift.ports import Blobs

__all__ = ["check_query", "moved_result", "queried", "query_location"]

_ROWS = 65_536  # of a row group: shards are cut between them
_READERS = {
    "parquet": "read_parquet([{files}], union_by_name=true)",
    "csv": "read_csv([{files}], union_by_name=true, header=true)",
    "tsv": "read_csv([{files}], union_by_name=true, header=true, delim='\t')",
    "jsonl": "read_json([{files}], union_by_name=true, format='newline_delimited')",
}
_COMPRESSIONS = (None, "gzip", "zstd")  # that DuckDB reads


def query_location(output: str) -> str:
    """Where the result of a job's query lies."""
    return f"{output.rstrip('/')}/_twoshift/query.parquet"


def queried(settings: JobSettings, sources: Sequence[InputFile], output: Blobs) -> tuple[InputFile, ...]:
    """The result of a job's query over these files, as its only input; raises InvalidInput where it cannot be had."""
    location = query_location(settings.output)
    output.delete(location)  # of a run that was killed before its plan was there: the input may be another by now
    staged = output.staging(location) / f"query-{uuid.uuid4().hex}"
    try:
        _write(settings.query or "", sources, staged)
        output.publish(staged, location)
    finally:
        staged.unlink(missing_ok=True)
    return (_found(location, output),)


def moved_result(settings: JobSettings, files: Sequence[InputFile], output: Blobs) -> tuple[InputFile, ...]:
    """The result of an earlier run's query by its name of today; raises Broken where it is gone, or another."""
    found = _found(query_location(settings.output), output)
    if [file.size_bytes for file in files] != [found.size_bytes]:
        raise Broken(f"{found.location} has changed since the job started; use another output folder")
    return (found,)


def _found(location: str, output: Blobs) -> InputFile:
    blob = output.stat(location)
    if blob is None:
        raise Broken(
            f"{location}, the result of the job's query, is gone; start the job again in another output folder"
        )
    return InputFile(blob.location, blob.size_bytes, blob.identity, "parquet")


def check_query(query: str) -> None:
    """Raises InvalidInput where it is no single SELECT."""
    duckdb = needed("duckdb", "query", "--query")
    try:
        kinds = [statement.type for statement in duckdb.extract_statements(query)]
    except duckdb.Error as error:
        raise _unusable(query, error) from error
    if kinds != [duckdb.StatementType.SELECT]:
        raise InvalidInput("query", query, "one SELECT over the table `input`")


def _write(query: str, sources: Sequence[InputFile], target: Path) -> None:
    duckdb = needed("duckdb", "query", "--query")
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as database:
        try:
            _open_input(database, sources)
            result = database.sql(query).to_arrow_reader(_ROWS)
            with pq.ParquetWriter(target, _storable(result.schema, query)) as writer:
                for batch in result:
                    writer.write_batch(batch, _ROWS)
        except duckdb.Error as error:
            raise _unusable(query, error) from error


def _open_input(database: Any, sources: Sequence[InputFile]) -> None:
    """The table `input`; nothing else of this machine can be read."""
    by_format: dict[str, list[str]] = {}
    for file in sources:
        if "://" in file.location:
            raise InvalidInput("query", file.location, "input files on this machine")
        if file.format not in _READERS or file.compression not in _COMPRESSIONS:
            accepted = f"input files in {', '.join(_READERS)}, all but parquet also with .gz or .zst"
            raise InvalidInput("query", file.location, accepted)
        if file.size_bytes:
            by_format.setdefault(file.format, []).append(_quoted(str(Path(file.location).absolute())))
    if not by_format:
        raise InvalidInput("query", [file.location for file in sources], "input files that are not empty")
    allowed = ", ".join(name for names in by_format.values() for name in names)
    readers = [_READERS[kind].format(files=", ".join(names)) for kind, names in by_format.items()]
    database.execute(f"SET allowed_paths=[{allowed}]")
    database.execute("SET enable_external_access=false")
    database.execute("SET lock_configuration=true")
    database.execute(f"CREATE VIEW input AS FROM {' UNION ALL BY NAME FROM '.join(readers)}")


def _storable(schema: pa.Schema, query: str) -> pa.Schema:
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise InvalidInput("query", query, f"columns with different names; {repeated[0]} is there twice")
    return schema


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unusable(query: str, error: Exception) -> InvalidInput:
    return InvalidInput("query", query, f"SQL that DuckDB can run over the table `input` ({first_line(error)})")
