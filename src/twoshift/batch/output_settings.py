"""Where the rows of a job go, as its settings have it: the parts, and a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

from twoshift.batch.setting_values import COLUMN, COMPRESSION, STORE, TABLE
from twoshift.declare import setting
from twoshift.errors import InvalidInput
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
        "FILE.sqlite, FOLDER.lance, qdrant://host:6333.",
        STORE,
        more="See [stores](stores.md).",
    ),
]
StoreTable = Annotated[str, setting("With --into: table or collection, created if it does not exist.", TABLE)]
StoreKey = Annotated[
    str | None,
    setting(
        "With --into: --keep column that identifies a row; a newer row replaces the older one.",
        COLUMN,
        shown="the row's position in the job",
    ),
]
PartitionColumn = Annotated[
    str | None,
    setting("With --into FOLDER.parquet: write one folder per value of this --keep column: COLUMN=VALUE/.", COLUMN),
]
FileSize = Annotated[
    float | None,
    setting("Approximate size of an output file: 256MB. Replaces --shard-seconds.", size(), shown="about 30 s of work"),
]
PartCompression = Annotated[
    str,
    setting(
        "Compression of Parquet output: zstd, snappy, gzip or none; a level may follow: zstd:9.",
        COMPRESSION,
        more="Vectors of floats do not compress, and are stored uncompressed.",
    ),
]

_OF_STORES = {"into_table": "results", "into_key": None}  # with their defaults
_OF_PARQUET = {"into": None, "file_size": None, "compression": "zstd"}


class OutputSettings(Protocol):
    """Those of a job that say where its rows go."""

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
    for name, accepted in _problems(settings):
        raise InvalidInput(name, getattr(settings, name), accepted)


def _problems(settings: OutputSettings) -> Iterator[tuple[str, str]]:
    given: dict[str, Any] = {name: getattr(settings, name) for name in (*_OF_STORES, *_OF_PARQUET)}
    if settings.into is None:
        yield from ((name, "--into to be set, too") for name, usual in _OF_STORES.items() if given[name] != usual)
    if settings.output_format != "parquet":
        others = (name for name, usual in _OF_PARQUET.items() if given[name] != usual)
        yield from ((name, "--output-format parquet") for name in others)
    for name, column in (("into_key", settings.into_key), ("partition_by", settings.partition_by)):
        if column is not None and column not in settings.keep:
            yield name, f"a column that --keep copies: --keep {column}"
    is_folder = (settings.into or "").rstrip("/").endswith(".parquet")
    if settings.partition_by is not None and not is_folder:
        yield "partition_by", "--into FOLDER.parquet"
    if is_folder and (settings.partition_by is None or settings.into_key is not None):
        yield "into", "--partition-by to be set, and no --into-key, for a folder of Parquet files"
