"""Settings of a job's output: the parts, and a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

from twoshift.batch.setting_values import COLUMN, COMPRESSION, STORE, TABLE
from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.values import size

__all__ = [
    "FileSize",
    "OutputSettings",
    "PartCompression",
    "PartitionColumn",
    "StoreKey",
    "StorePlace",
    "StoreTable",
    "check_outputs",
]

StorePlace = Annotated[
    str | None,
    setting(
        "Also load the results into a database or vector store: postgresql://user@host/db, FILE.duckdb, "
        "FILE.sqlite, FOLDER.lance, qdrant://host:6333, or FOLDER.parquet with --partition-by.",
        STORE,
        more="See [stores](stores.md).",
    ),
]
StoreTable = Annotated[
    str, setting("With --into: table or collection. Twoshift creates the table if it does not exist.", TABLE)
]
StoreKey = Annotated[
    str | None,
    setting(
        "With --into: column that identifies a row; --keep must also name this column. A newer row replaces the stored "
        "row with the same value.",
        COLUMN,
        shown="the row's position in the job",
    ),
]
PartitionColumn = Annotated[
    str | None,
    setting(
        "With --into FOLDER.parquet: column that splits the rows into folders COLUMN=VALUE/. --keep must also name "
        "this column.",
        COLUMN,
    ),
]
FileSize = Annotated[
    float | None,
    setting(
        "Approximate size of an output file, such as 256MB. If given, --shard-seconds is ignored.",
        size(),
        shown="the results of about 30 s of work",
    ),
]
PartCompression = Annotated[
    str,
    setting(
        "Compression of Parquet output: zstd, snappy, gzip or none. zstd and gzip may have a level, as in zstd:9.",
        COMPRESSION,
        more="Vectors of floats are stored uncompressed, because compression does not make them smaller.",
    ),
]

_OF_STORES = {"into_table": "results", "into_key": None}  # with their defaults
_OF_PARQUET = {"into": None, "file_size": None, "compression": "zstd"}


class OutputSettings(Protocol):
    """The settings that say where a job's rows go."""

    @property
    def keep(self) -> tuple[str, ...]: ...
    @property
    def output_format(self) -> str: ...
    @property
    def into(self) -> str | None: ...
    @property
    def into_key(self) -> str | None: ...
    @property
    def partition_by(self) -> str | None: ...


def check_outputs(settings: OutputSettings) -> None:
    """Raises InvalidInput for the first that does not fit."""
    for name, why in _problems(settings):
        raise Inapplicable(name, getattr(settings, name), why)
    for name, column in (("into_key", settings.into_key), ("partition_by", settings.partition_by)):
        if column is not None and column not in settings.keep:
            raise InvalidInput(name, column, f"a column that --keep copies: add --keep {column}")


def _problems(settings: OutputSettings) -> Iterator[tuple[str, str]]:
    given: dict[str, Any] = {name: getattr(settings, name) for name in (*_OF_STORES, *_OF_PARQUET)}
    if settings.into is None:
        yield from ((name, "without --into") for name, usual in _OF_STORES.items() if given[name] != usual)
    if settings.output_format != "parquet":
        others = (name for name, usual in _OF_PARQUET.items() if given[name] != usual)
        yield from ((name, "without --output-format parquet") for name in others)
    is_folder = (settings.into or "").rstrip("/").endswith(".parquet")
    if settings.partition_by is not None and not is_folder:
        yield "partition_by", "without --into FOLDER.parquet"
    if is_folder and settings.partition_by is None:
        yield "into", "without --partition-by, which a folder of Parquet files needs"
    if is_folder and settings.into_key is not None:
        yield "into_key", "with --into FOLDER.parquet"
