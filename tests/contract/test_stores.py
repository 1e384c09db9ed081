"""What is true of every store that a job's parts are loaded into."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from real_postgres import RealPostgres

from twoshift.batch.settings import make_settings
from twoshift.batch.stores.known import open_store, without_password
from twoshift.batch.stores.rows import KeyedRows, store_table
from twoshift.batch.stores.store import Store
from twoshift.batch.stores.table import JOB, ROW, VERSION, LoadedPart, StoreTable
from twoshift.errors import InvalidInput, TryLater

STORES = ("postgres", "duckdb", "sqlite", "lance", "qdrant")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("title", pa.string()),
        pa.field("embedding", pa.list_(pa.float32(), 3)),
        pa.field("error", pa.string()),
    ]
)


@dataclass
class Place:
    """A store of the test's own, and how somebody else reads it."""

    kind: str
    url: str
    read: Callable[[str], list[dict[str, Any]]]

    def open(self) -> Store:
        return open_store(self.url)


@pytest.fixture(scope="module")
def postgres() -> Iterator[RealPostgres]:
    server = RealPostgres()
    yield server
    server.end()


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "postgres":
            url = request.getfixturevalue("postgres").url()
            return Place("postgres", url, lambda table: _postgres_rows(url, table))
        case "duckdb":
            pytest.importorskip("duckdb")
            path = str(tmp_path / "a.duckdb")
            return Place("duckdb", path, lambda table: _duckdb_rows(path, table))
        case "sqlite":
            path = str(tmp_path / "a.sqlite")
            return Place("sqlite", path, lambda table: _sqlite_rows(path, table))
        case "lance":
            lance, path = pytest.importorskip("lance"), str(tmp_path / "a.lance")
            return Place("lance", path, lambda _: lance.dataset(path).to_table().to_pylist())
        case _:
            pytest.importorskip("qdrant_client")
            return Place(
                "qdrant", f"qdrant:///{tmp_path / 'qdrant'}", lambda table: _points(tmp_path / "qdrant", table)
            )


def _postgres_rows(url: str, table: str) -> list[dict[str, Any]]:
    import psycopg

    with psycopg.connect(url) as session:
        asked = session.execute(f"SELECT * FROM {table}".encode())  # noqa: S608
        names = [each.name for each in asked.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in asked]
    for row in rows:
        if isinstance(row.get("embedding"), str):  # as pgvector shows it
            row["embedding"] = [float(each) for each in row["embedding"].strip("[]").split(",")]
    return rows


def _duckdb_rows(path: str, table: str) -> list[dict[str, Any]]:
    import duckdb

    with duckdb.connect(path) as session:
        return session.sql(f"FROM {table}").to_arrow_table().to_pylist()


def _sqlite_rows(path: str, table: str) -> list[dict[str, Any]]:
    session = sqlite3.connect(path)
    session.row_factory = sqlite3.Row
    rows = [dict(row) for row in session.execute(f"SELECT * FROM {table}")]  # noqa: S608
    session.close()
    for row in rows:
        if isinstance(row.get("embedding"), bytes):
            row["embedding"] = np.frombuffer(row["embedding"], "<f4").tolist()
    return rows


def _points(path: Path, table: str) -> list[dict[str, Any]]:
    client = pytest.importorskip("qdrant_client").QdrantClient(path=str(path))
    points = client.scroll(table, limit=1000, with_vectors=True)[0]
    client.close()
    return [{"embedding": None, **each.payload, **each.vector} for each in points]


def _table(schema: pa.Schema = SCHEMA, key: str | None = "id", name: str = "docs") -> StoreTable:
    keep = ("id",) if "id" in schema.names else ()
    words = {"inputs": ["a"], "output": "o", "model": "m", "keep": keep, "into": "a.sqlite", "into_table": name}
    return store_table(make_settings(words | ({"into_key": key} if key else {})), schema)


def _batch(ids: Iterable[int | None], title: str = "a", schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    rows = [{"id": k, "title": title, "embedding": [k or 0, 0.5, -1.0]} for k in ids]
    return pa.RecordBatch.from_pylist(rows, schema)


def _part(
    table: StoreTable, batches: Iterable[pa.RecordBatch], shard: int = 0, job: str = "job", version: str = "m:1 c"
) -> KeyedRows:
    return KeyedRows(table, job, shard, version, batches)


def _by_id(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    assert len({row["id"] for row in rows}) == len(rows)  # none is there twice
    return {row["id"]: row for row in rows}


def _seen(found: dict[str, Any]) -> tuple[Any, ...]:
    vector = found["embedding"]
    return (
        found["id"],
        found["title"],
        None if vector is None else [round(each, 4) for each in vector],
        found["error"],
    )


def test_rows_of_a_part_are_in_the_table_with_their_vectors_errors_and_version(place: Place) -> None:
    table, store = _table(), place.open()
    store.check(table)
    store.create(table)
    bad = pa.RecordBatch.from_pylist([{"id": 3, "title": None, "embedding": None, "error": "bad row"}], SCHEMA)
    assert store.load(table, _part(table, [_batch([1, 2]), bad])) == LoadedPart(3, 3, 0)
    assert store.loaded(table, "job") == {0: LoadedPart(3, 3, 0)}
    assert store.loaded(table, "another job") == {}
    store.close()
    found = _by_id(place.read("docs"))
    assert [_seen(found[k]) for k in (1, 2)] == [(1, "a", [1, 0.5, -1], None), (2, "a", [2, 0.5, -1], None)]
    assert _seen(found[3]) == (3, None, None, "bad row")
    assert {(row[JOB], row[VERSION]) for row in found.values()} == {("job", "m:1 c")}


def test_a_load_that_fails_in_the_middle_leaves_no_mark_and_is_repeated_without_doubling(place: Place) -> None:
    table, store = _table(), place.open()
    store.create(table)
    store.load(table, _part(table, [_batch([1], "first")], shard=0))

    def cut() -> Iterator[pa.RecordBatch]:
        yield _batch([1, 2], "second")
        raise RuntimeError("killed")

    with pytest.raises((RuntimeError, TryLater, InvalidInput)):
        store.load(table, _part(table, cut(), shard=1))
    store.close()
    if place.kind != "qdrant":  # it has no transactions; the repeated upsert gives the same points
        assert {k: row["title"] for k, row in _by_id(place.read("docs")).items()} == {1: "first"}
    store = place.open()
    assert set(store.loaded(table, "job")) == {0}
    store.load(table, _part(table, [_batch([1, 2], "second")], shard=1))
    assert set(store.loaded(table, "job")) == {0, 1}
    store.close()
    assert {k: row["title"] for k, row in _by_id(place.read("docs")).items()} == {1: "second", 2: "second"}


def test_of_rows_with_one_key_the_last_wins_and_rows_without_one_are_counted(place: Place) -> None:
    table, store = _table(), place.open()
    store.create(table)
    batches = [_batch([1, None, 1, 2], "a"), _batch([2, 3], "b")]
    assert store.load(table, _part(table, batches)) == LoadedPart(6, 3, 1)
    assert store.load(table, _part(table, [_batch([3, 4], "c")], shard=1)) == LoadedPart(2, 1, 0)
    store.close()
    assert {k: row["title"] for k, row in _by_id(place.read("docs")).items()} == {1: "a", 2: "b", 3: "c", 4: "c"}


def test_rows_without_a_key_column_are_known_by_their_place_in_the_job(place: Place) -> None:
    schema = pa.schema([pa.field("y", pa.float64()), pa.field("error", pa.string())])
    table, store = _table(schema, key=None), place.open()
    store.create(table)
    batch = pa.RecordBatch.from_pylist([{"y": 1.5}, {"y": 1.5}], schema)
    assert store.load(table, _part(table, [batch, batch])) == LoadedPart(4, 4, 0)
    store.close()
    assert sorted(row[ROW] for row in place.read("docs")) == [f"job-000000-{k:08d}" for k in range(4)]


def test_a_table_of_another_dimension_or_without_a_column_is_refused_by_name(place: Place) -> None:
    store = place.open()
    store.create(_table())
    longer = SCHEMA.set(2, pa.field("embedding", pa.list_(pa.float32(), 4)))
    if place.kind != "sqlite":  # its blobs have any length
        with pytest.raises(InvalidInput, match=r"into_table: 'docs'.*column embedding can hold vectors of 4 numbers"):
            store.check(_table(longer))
    more = SCHEMA.append(pa.field("other", pa.list_(pa.float32(), 3)))
    with pytest.raises(InvalidInput, match=r"into_table: 'docs'.*a table with the column other"):
        store.create(_table(more))
    store.close()


def test_a_table_that_was_dropped_is_made_anew_and_its_marks_are_void(place: Place) -> None:
    table, store = _table(), place.open()
    store.create(table)
    store.load(table, _part(table, [_batch([1])]))
    store.close()
    _drop(place)
    store = place.open()
    store.create(table)
    assert store.loaded(table, "job") == {}
    store.load(table, _part(table, [_batch([1])]))
    store.close()
    assert len(place.read("docs")) == 1


def _drop(place: Place) -> None:
    match place.kind:
        case "postgres":
            import psycopg

            with psycopg.connect(place.url) as session:
                session.execute("DROP TABLE docs")
        case "duckdb":
            import duckdb

            with duckdb.connect(place.url) as session:
                session.execute("DROP TABLE docs").fetchall()
        case "sqlite":
            session = sqlite3.connect(place.url)
            session.execute("DROP TABLE docs")
            session.close()
        case "lance":
            import shutil

            shutil.rmtree(place.url)
        case _:
            module = pytest.importorskip("qdrant_client")
            client = module.QdrantClient(path=place.url.removeprefix("qdrant:///"))
            client.delete_collection("docs")
            client.close()


def test_every_type_of_column_has_a_place(place: Place) -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5)
    row = {
        "id": 1, "flag": True, "small": 7, "ratio": 0.25, "words": ["a", "b"], "day": at.date(), "at": at,
        "raw": b"\0x", "title": "tab\tüñ", "big": 2**63, "error": None,
    }  # fmt: skip
    types = {
        "id": pa.int64(), "flag": pa.bool_(), "small": pa.int16(), "ratio": pa.float32(),
        "words": pa.list_(pa.string()), "day": pa.date32(), "at": pa.timestamp("us"), "raw": pa.binary(),
        "title": pa.string(), "big": pa.uint64(), "error": pa.string(),
    }  # fmt: skip
    if place.kind == "qdrant":  # a payload is JSON
        del row["raw"], types["raw"], row["big"], types["big"]
    schema = pa.schema(types.items())
    table, store = _table(schema), place.open()
    store.create(table)
    nothing = dict.fromkeys(types) | {"id": 2}
    store.load(table, _part(table, [pa.RecordBatch.from_pylist([row, nothing], schema)]))
    store.close()
    found = _by_id(place.read("docs"))
    assert (found[1]["flag"], found[1]["small"], found[1]["ratio"], found[1]["title"]) == (True, 7, 0.25, "tab\tüñ")
    assert str(found[1]["day"]) == "2026-01-02"
    assert str(found[1]["at"])[:19].replace("T", " ") == "2026-01-02 03:04:05"
    assert str(found[1]["words"]).replace("'", '"').replace(" ", "") == '["a","b"]'
    assert int(found[1].get("big", 2**63)) == 2**63
    assert all(found[2][name] is None for name in types if name != "id")


def test_a_store_that_does_not_answer_is_to_be_tried_later() -> None:
    table = _table()
    pytest.importorskip("psycopg")
    with pytest.raises(TryLater, match=r"postgresql://me@127.0.0.1:1/x: .*refused"):
        open_store("postgresql://me:secret@127.0.0.1:1/x").check(table)


@pytest.mark.parametrize("name", ["a.sqlite", "a.duckdb"])
def test_a_file_in_no_folder_is_told_so(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"mkdir -p {tmp_path}/no/folder"):
        open_store(str(tmp_path / "no" / "folder" / name))


def _partitioned(schema: pa.Schema = SCHEMA, column: str = "title") -> StoreTable:
    words = {"inputs": ["a"], "output": "o", "model": "m", "keep": schema.names, "into": "a.parquet"}
    return store_table(make_settings(words | {"partition_by": column}), schema)


def test_a_folder_of_parquet_is_divided_by_a_column_and_a_repeated_load_writes_the_same_files(tmp_path: Path) -> None:
    table, store = _partitioned(), open_store(str(tmp_path / "a.parquet"))
    store.create(table)
    nulls = pa.RecordBatch.from_pylist([{"id": 7, "embedding": [1.0, 2.0, 3.0]}], SCHEMA)
    batches = [_batch([1, 2], "a b/c"), _batch([3], "ü=1"), nulls]

    def cut() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.load(table, _part(table, cut()))
    assert store.loaded(table, "job") == {}
    for _ in range(2):  # the second time as after a kill before the mark
        assert store.load(table, _part(table, batches)) == LoadedPart(4, 4, 0)
    store.load(table, _part(table, [_batch([9], "ü=1")], shard=1))
    assert set(store.loaded(table, "job")) == {0, 1}
    read = ds.dataset(tmp_path / "a.parquet", partitioning="hive").to_table().to_pylist()
    assert sorted((row["id"], row["title"]) for row in read) == [
        (1, "a b/c"),
        (2, "a b/c"),
        (3, "ü=1"),
        (7, None),
        (9, "ü=1"),
    ]
    assert [path.name for path in tmp_path.rglob(".*")] == []  # nothing is left of what was begun


def test_a_folder_of_parquet_refuses_other_columns_many_values_and_odd_types(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.parquet"))
    store.create(_partitioned())
    with pytest.raises(InvalidInput, match="partitioned by another column"):
        store.check(_partitioned(column="id"))
    with pytest.raises(InvalidInput, match="a column of texts, whole numbers, booleans or dates"):
        store.check(_partitioned(pa.schema([*SCHEMA, pa.field("ratio", pa.float64())]), "ratio"))
    by_id = _partitioned(column="id")
    with pytest.raises(InvalidInput, match="at most 1,000 different values in a part; the part of shard 0 has 1,001"):
        open_store(str(tmp_path / "b.parquet")).load(by_id, _part(by_id, [_batch(range(1001))]))


def test_a_password_is_never_shown() -> None:
    assert without_password("postgresql://me:secret@host:5/db?password=x&sslmode=require") == (
        "postgresql://me@host:5/db?sslmode=require"
    )
    with pytest.raises(InvalidInput, match=r"^(?!.*secret)"):
        open_store("mysql://me:secret@host/db")


def test_without_pgvector_vectors_are_arrays_and_nan_has_a_place_there(postgres: RealPostgres) -> None:
    url = postgres.url()
    postgres.execute("CREATE TABLE docs (id uuid PRIMARY KEY, title text, embedding real[], error text)", url)
    schema = SCHEMA.set(0, pa.field("id", pa.string()))
    table, store = _table(schema), open_store(url)
    store.create(table)
    ids = [f"00000000-0000-0000-0000-00000000000{k}" for k in range(2)]
    rows = [{"id": ids[0], "embedding": [1.0, 2.0, 3.0]}, {"id": ids[1], "embedding": [1.0, float("nan"), 3.0]}]
    store.load(table, _part(table, [pa.RecordBatch.from_pylist(rows, schema)]))
    found = {str(row["id"]): row for row in _postgres_rows(url, "docs")}
    assert found[ids[0]]["embedding"] == [1, 2, 3]
    assert np.isnan(found[ids[1]]["embedding"][1])


def test_pgvector_takes_no_nan_and_the_row_says_so(postgres: RealPostgres) -> None:
    url = postgres.url()
    table, store = _table(), open_store(url)
    store.create(table)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "title": "a\0b", "embedding": [1.0, float("nan"), 0.0]}], SCHEMA)
    store.load(table, _part(table, [batch]))
    [row] = _postgres_rows(url, "docs")
    assert (row["embedding"], row["title"]) == (None, "a\ufffdb")
    assert "embedding has a NaN" in row["error"]


def test_two_who_load_the_same_part_at_once_load_it_once(postgres: RealPostgres) -> None:
    url = postgres.url()
    table, store = _table(), open_store(url)
    store.create(table)
    first = store.load(table, _part(table, [_batch([1])]))
    assert store.load(table, _part(table, [_batch([1, 2])])) == first  # its mark is there: nothing is done
    assert len(_postgres_rows(url, "docs")) == 1
