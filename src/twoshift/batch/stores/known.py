"""Which store a place is of."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from twoshift.answers.redis_place import is_redis
from twoshift.batch.stores.store import Store
from twoshift.errors import InvalidInput

__all__ = ["ACCEPTED", "is_folder", "is_store", "open_store", "without_password"]

ACCEPTED = (
    "postgresql://user@host/database, FILE.duckdb, FILE.sqlite, FOLDER.lance, FOLDER.parquet with --partition-by, "
    "qdrant://host:6333 (or qdrants:// with TLS), or qdrant:///FOLDER"
)
_POSTGRES = ("postgresql://", "postgres://")
_QDRANT = {"qdrant://": "http://", "qdrants://": "https://"}
_FILES = (".duckdb", ".sqlite", ".sqlite3", ".db")


def is_store(place: str) -> bool:
    """Whether a place is one that can be loaded into, by its name."""
    if place.startswith((*_POSTGRES, *_QDRANT)):
        return True
    name = place.rstrip("/")
    return name.endswith(".lance") or is_folder(place) or ("://" not in name and name.endswith(_FILES))


def is_folder(place: str) -> bool:
    """Whether it is a folder of Parquet files, divided by a column."""
    return "://" not in place and place.rstrip("/").endswith(".parquet")


def open_store(place: str) -> Store:
    """Raises InvalidInput where it is none, NotInstalled where its package is missing."""
    if is_redis(place):
        redis = "--answer-key COLUMN --answer-table redis://..., or run `twoshift load` when the job has ended"
        accepted = f"a store other than Redis; for Redis, use {redis}"
        raise InvalidInput("into", without_password(place), accepted)
    if not is_store(place):
        raise InvalidInput("into", without_password(place), ACCEPTED)
    if place.startswith(_POSTGRES):
        from twoshift.batch.stores.postgres import PostgresStore

        return PostgresStore(place, without_password(place))
    if place.startswith(tuple(_QDRANT)):
        return _qdrant(place)
    if place.rstrip("/").endswith(".lance"):
        from twoshift.batch.stores.lance_dataset import LanceStore

        return LanceStore(place)
    if is_folder(place):
        from twoshift.batch.stores.partitioned import PartitionedStore

        return PartitionedStore(place)
    if not (folder := Path(place).absolute().parent).is_dir():
        raise InvalidInput("into", place, f"a file in a folder that exists (mkdir -p {folder})")
    if place.endswith(".duckdb"):
        from twoshift.batch.stores.duckdb_file import DuckdbStore

        return DuckdbStore(place)
    from twoshift.batch.stores.sqlite_file import SqliteStore

    return SqliteStore(place)


def _qdrant(place: str) -> Store:
    from twoshift.batch.stores.qdrant import QdrantStore

    scheme = next(each for each in _QDRANT if place.startswith(each))
    rest = place.removeprefix(scheme)
    return QdrantStore(None, rest[1:]) if rest.startswith("/") else QdrantStore(f"{_QDRANT[scheme]}{rest}", None)


def without_password(place: str) -> str:
    """As it may be shown, and written beside the parts."""
    parts = urlsplit(place)
    user, at, host = parts.netloc.rpartition("@")
    words = [each for each in parts.query.split("&") if not each.lower().startswith("password=")]
    if ":" not in user and words == parts.query.split("&"):
        return place
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query="&".join(words)))
