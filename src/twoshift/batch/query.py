"""A query over the input: its result is a file of the job's own, made once, and read in place of the input."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from twoshift.batch.inputs import NULL_WORDS, Constant, InputFile, model_types
from twoshift.batch.settings import JobSettings
from twoshift.errors import Broken, InvalidInput, Malformed, first_line
from twoshift.extras import needed
from twoshift.ports import Blobs

__all__ = ["check_query", "moved_result", "queried", "query_location"]

_ROWS = 65_536  # of a row group: shards are cut between them
_READERS = {
    "parquet": "read_parquet([{files}], union_by_name=true)",
    "csv": "read_csv([{files}], union_by_name=true, header=true, all_varchar=true, delim=',')",
    "tsv": "read_csv([{files}], union_by_name=true, header=true, all_varchar=true, delim='\t')",
    "jsonl": "read_json([{files}], union_by_name=true, format='newline_delimited')",
}
_SQL_TYPES = {"bool": "BOOLEAN", "float": "DOUBLE", "int": "BIGINT"}
_CONSTANT_TYPES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "VARCHAR", "date32[day]": "DATE",
}  # fmt: skip
_COMPRESSIONS = (None, "gzip", "zstd")  # that DuckDB reads

BlobsFor = Callable[[str], Blobs]


def query_location(output: str) -> str:
    """Where the result of a job's query lies."""
    return f"{output.rstrip('/')}/_twoshift/query.parquet"


def queried(settings: JobSettings, sources: Sequence[InputFile], blobs_for: BlobsFor) -> tuple[InputFile, ...]:
    """The result of a job's query over these files, as its only input; raises InvalidInput where it cannot be had."""
    location, output = query_location(settings.output), blobs_for(settings.output)
    output.delete(location)  # of a run that was killed before its plan was there: the input may be another by now
    staged = output.staging(f"{settings.output.rstrip('/')}/query.parquet") / f"query-{uuid.uuid4().hex}"
    try:
        _write(settings, _Tables(sources, blobs_for, settings.types), staged)
        output.publish(staged, location)
    finally:
        staged.unlink(missing_ok=True)
    return (_found(location, output),)


def moved_result(settings: JobSettings, files: Sequence[InputFile], output: Blobs) -> tuple[InputFile, ...]:
    """The result of an earlier run's query by its name of today; raises Broken where it is gone, or another."""
    found = _found(query_location(settings.output), output)
    if [file.size_bytes for file in files] != [found.size_bytes]:
        raise Broken(
            f"{found.location} has changed since the job started; start the job again in another output folder"
        )
    return (found,)


def _found(location: str, output: Blobs) -> InputFile:
    blob = output.stat(location)
    if blob is None:
        raise Broken(
            f"{location}, the result of the job's query, no longer exists; start the job again in another output folder"
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
        raise InvalidInput("query", query, "one SELECT statement over the table `input`")


def _write(settings: JobSettings, tables: _Tables, target: Path) -> None:
    duckdb, query = needed("duckdb", "query", "--query"), settings.query or ""
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as database:
        try:
            tables.open(database)
            result = database.sql(query).to_arrow_reader(_ROWS)
            with pq.ParquetWriter(target, _storable(result.schema, query)) as writer:
                for batch in result:
                    writer.write_batch(batch, _ROWS)
        except duckdb.Error as error:
            raise _unusable(query, error) from error


class _Tables:
    """The files of a job's input as the table `input`; raises InvalidInput for one that DuckDB does not read."""

    def __init__(self, sources: Sequence[InputFile], blobs_for: BlobsFor, stated: Mapping[str, str]) -> None:
        self._files: dict[tuple[str, tuple[Constant, ...]], list[InputFile]] = {}
        for file in sources:
            if "://" in file.location:
                raise InvalidInput("query", file.location, "input files on this machine: --query does not read buckets")
            if file.format not in _READERS or file.compression not in _COMPRESSIONS:
                accepted = (
                    f"input files in the formats {', '.join(_READERS)}; all but parquet may be compressed (.gz, .zst)"
                )
                raise InvalidInput("query", file.location, accepted)
            if file.size_bytes:
                self._files.setdefault((file.format, file.constants), []).append(file)
        if not self._files:
            empty = ", ".join(file.location for file in sources)
            raise Malformed("query", f"at least one input file with rows; these input files are empty: {empty}")
        self._blobs_for, self._stated = blobs_for, stated

    def open(self, database: Any) -> None:
        """Make the table; nothing else of this machine can be read from then on."""
        allowed = ", ".join(_quoted(_path(file)) for files in self._files.values() for file in files)
        database.execute(f"SET allowed_paths=[{allowed}]")
        database.execute("SET enable_external_access=false")
        database.execute("SET lock_configuration=true")
        tables = " UNION ALL BY NAME ".join(
            self._table(kind, constants, files) for (kind, constants), files in self._files.items()
        )
        database.execute(f"CREATE VIEW input AS {tables}")

    def _table(self, kind: str, constants: Sequence[Constant], files: Sequence[InputFile]) -> str:
        reader = _READERS[kind].format(files=", ".join(_quoted(_path(file)) for file in files))
        typed = ", ".join(self._typed(kind, files))
        if constants:  # of a table, which says it better than the names of folders do
            reader = f"{reader.removesuffix(')')}, hive_partitioning=false)"
        added = "".join(f", {_value(each)}" for each in constants)
        return f"(FROM {reader} SELECT *{f' REPLACE ({typed})' if typed else ''}{added})"

    def _typed(self, kind: str, files: Sequence[InputFile]) -> Iterator[str]:
        """Columns of CSV with the types that they have in a job without a query."""
        if kind not in ("csv", "tsv"):
            return
        nulls = ", ".join(map(_quoted, NULL_WORDS))
        types = model_types(files, self._blobs_for, None, {})
        stated = {name: told for name, told in self._stated.items() if name in types}
        for name, told in (types | stated).items():
            if told != "string":
                column = '"' + name.replace('"', '""') + '"'
                value = f"CASE WHEN trim({column}) NOT IN ({nulls}) THEN trim({column}) END"
                yield f"CAST({value} AS {_SQL_TYPES[told]}) AS {column}"


def _value(constant: Constant) -> str:
    """A column that a table's file does not have."""
    value = "NULL" if constant.value is None else _quoted(constant.value)
    name = '"' + constant.name.replace('"', '""') + '"'
    return f"CAST({value} AS {_CONSTANT_TYPES[constant.type]}) AS {name}"


def _path(file: InputFile) -> str:
    return str(Path(file.location).absolute())


def _storable(schema: pa.Schema, query: str) -> pa.Schema:
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise InvalidInput(
            "query", query, f"a query whose columns have different names; the column {repeated[0]} occurs twice"
        )
    return schema


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unusable(query: str, error: Exception) -> InvalidInput:
    return InvalidInput("query", query, f"SQL that DuckDB can run over the table `input` ({first_line(error)})")
