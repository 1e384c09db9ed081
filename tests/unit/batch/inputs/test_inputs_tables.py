"""Delta and Iceberg tables as input: the rows of one version, and what is refused instead of read wrongly."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.inputs import InputFile, kept_schema, read, resolve
from twoshift.batch.query import queried
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import InvalidInput, NotInstalled
from waiting import until

BLOBS = LocalBlobs()
ROWS = pa.table({"id": [0, 1, 2, 3], "text": ["a", "b", "c", "d"], "day": [1, 1, None, None]})
DATES = ROWS.append_column("on", pa.array([dt.date(2026, 1, 31)] * 4, pa.date32()))


def found(location: Path, begun_with: list[InputFile] | None = None) -> list[InputFile]:
    return resolve([str(location)], lambda _: BLOBS, None, begun_with or [])


def rows(files: list[InputFile], columns: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    batches = (batch for file in files for batch in read(file.whole(), file, BLOBS, columns, 100, 1 << 20))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """Partitioned, with rows that were deleted since."""
    deltalake = pytest.importorskip("deltalake")
    path = tmp_path / "delta table"
    deltalake.write_deltalake(str(path), DATES, partition_by=["day", "on"])
    deltalake.DeltaTable(str(path)).delete("id = 1")
    return path


def test_a_delta_table_has_its_partition_columns_and_not_its_deleted_rows(delta: Path) -> None:
    files = found(delta)
    assert len(list(delta.rglob("*.parquet"))) > len(files)  # what the folder alone would give
    assert [(row["id"], row["day"], row["on"]) for row in rows(files)] == [
        (0, 1, dt.date(2026, 1, 31)),
        (2, None, dt.date(2026, 1, 31)),
        (3, None, dt.date(2026, 1, 31)),
    ]
    assert kept_schema(files, lambda _: BLOBS, ("day", "on")) == pa.schema([("day", pa.int64()), ("on", pa.date32())])
    assert rows(files, ("id", "day"))[0] == {"id": 0, "day": 1, "__error__": None}


def test_a_later_look_at_a_table_finds_the_version_that_a_plan_has(
    delta: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    begun = found(delta)
    deltalake.write_deltalake(str(delta), DATES.slice(0, 1), mode="append")
    assert len(rows(found(delta))) == 4
    monkeypatch.chdir(delta.parent)
    again = found(Path("delta table"), begun)  # also by another name of it
    assert [row["id"] for row in rows(again)] == [0, 2, 3]
    assert {file.table and file.table.version for file in again} == {1}


def test_a_version_whose_files_are_gone_is_refused(delta: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    begun = found(delta)
    table = deltalake.DeltaTable(str(delta))
    table.optimize.compact()
    table.delete()
    until(lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False))  # not in the very millisecond
    with pytest.raises(InvalidInput, match=r"a vacuum has removed this file of version 1 of the table"):
        found(delta, begun)
    with pytest.raises(InvalidInput, match="is empty"):
        found(delta)


def logged(path: Path, change: Any) -> None:
    """Another first version of a table, as other writers leave them."""
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def features(action: dict[str, Any], *names: str) -> None:
    if "protocol" in action:
        known = {"readerFeatures": [*names], "writerFeatures": [*names]}
        action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **known}


def test_deletion_vectors_are_refused_and_only_where_there_are_some(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS)
    logged(tmp_path / "t", lambda action: features(action, "deletionVectors"))
    assert len(rows(found(tmp_path / "t"))) == 4

    def delete(action: dict[str, Any]) -> None:
        if "add" in action:
            vector = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
            action["add"]["deletionVector"] = {**vector, "sizeInBytes": 40, "cardinality": 2}

    logged(tmp_path / "t", delete)
    with pytest.raises(InvalidInput, match="without deletion vectors"):
        found(tmp_path / "t")


def test_columns_with_other_names_in_the_files_are_refused(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS)

    def map_columns(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                own = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
                field["metadata"] = own
            action["metaData"]["schemaString"] = json.dumps(schema)
        features(action, "columnMapping")

    logged(tmp_path / "t", map_columns)
    with pytest.raises(InvalidInput, match="without column mapping"):
        found(tmp_path / "t")


def test_a_damaged_table_and_a_missing_package_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(InvalidInput, match="a Delta table that can be read"):
        found(tmp_path / "t")
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(NotInstalled, match="pip install deltalake"):
        found(tmp_path / "t")


def test_a_query_over_a_table_has_its_partition_columns(delta: Path, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    query = 'SELECT id, day, "on" FROM input WHERE day IS NULL ORDER BY id'
    settings = JobSettings(inputs=(str(delta),), output=str(tmp_path / "out"), model="m", query=query)
    (file,) = queried(settings, found(delta), lambda _: BLOBS)
    assert [row["id"] for row in pq.read_table(file.location).to_pylist()] == [2, 3]


@pytest.fixture
def iceberg(tmp_path: Path) -> Any:
    """A table with a row that was deleted."""
    catalogs = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = catalogs.InMemoryCatalog("c", warehouse=str(tmp_path / "ice"))
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=ROWS.schema)
    table.append(ROWS)
    table.delete("id = 1")
    return table


ICE = pytest.mark.filterwarnings("ignore")  # the library warns of what it does


@ICE
def test_an_iceberg_table_by_its_folder_or_its_metadata_file(iceberg: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ice" / "n" / "t"
    begun = found(folder)
    assert [row["id"] for row in rows(begun)] == [0, 2, 3]
    assert [row["id"] for row in rows(found(Path(iceberg.metadata_location)))] == [0, 2, 3]
    iceberg.append(ROWS)
    assert len(rows(found(folder))) == 7
    assert [row["id"] for row in rows(found(folder, begun))] == [0, 2, 3]


@ICE
def test_a_folder_that_does_not_tell_its_latest_metadata_is_refused(iceberg: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ice" / "n" / "t"
    last = Path(iceberg.metadata_location)
    last.with_name(f"{last.name[:5]}-another.metadata.json").write_bytes(last.read_bytes())
    with pytest.raises(InvalidInput, match="does not show which metadata file is the latest"):
        found(folder)
    (last.parent / "version-hint.text").write_text(last.name.removesuffix(".metadata.json"))
    assert len(rows(found(folder))) == 3


@ICE
def test_renamed_columns_and_delete_files_of_iceberg_are_refused(
    iceberg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ice" / "n" / "t"
    from pyiceberg.table import DataScan

    whole = DataScan.plan_files

    def deleted(scan: Any) -> Any:
        return [SimpleNamespace(file=task.file, delete_files={"a delete file"}) for task in whole(scan)]

    with monkeypatch.context() as patched:
        patched.setattr(DataScan, "plan_files", deleted)
        with pytest.raises(InvalidInput, match="without delete files"):
            found(folder)
    with iceberg.update_schema() as change:
        change.rename_column("text", "body")
    with pytest.raises(InvalidInput, match="never renamed or dropped; the column text was renamed"):
        found(folder)
