"""A query over the input: what it can read, what it gives, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.inputs import InputFile, resolve
from twoshift.batch.query import check_query, moved_result, queried, query_location
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput

pytest.importorskip("duckdb")
BLOBS = LocalBlobs()


class Folder:
    """Some files, and an output folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def settings(self, query: str, *names: str) -> JobSettings:
        inputs = tuple(str(self.path / name) for name in names)
        return JobSettings(inputs=inputs, output=str(self.path / "out"), model="m", query=query)

    def run(self, query: str, *names: str) -> tuple[InputFile, ...]:
        settings = self.settings(query, *names)
        return queried(settings, resolve(settings.inputs, lambda _: BLOBS), lambda _: BLOBS)

    def rows(self, query: str, *names: str) -> list[dict[str, Any]]:
        (file,) = self.run(query, *names)
        return pq.read_table(file.location).to_pylist()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "it's.csv").write_text("id,amount\n1,2.5\n2,\n")
    (tmp_path / "b.tsv").write_text("id\tamount\n3\t7.5\n")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"id": 4, "amount": 1.0}\n'))
    pq.write_table(pa.table({"id": [5], "name": ["x"]}), tmp_path / "d.parquet")
    (tmp_path / "secret.csv").write_text("id\n99\n")
    (tmp_path / "empty.csv").write_text("")
    return Folder(tmp_path)


def test_files_of_every_format_are_one_table(folder: Folder) -> None:
    names = ("it's.csv", "b.tsv", "c.jsonl.gz", "d.parquet", "empty.csv")
    found = folder.rows("SELECT id, amount, name FROM input ORDER BY id DESC", *names)
    assert [row["id"] for row in found] == [5, 4, 3, 2, 1]
    assert [row["amount"] for row in found] == [None, 1.0, 7.5, None, 2.5]
    assert found[0]["name"] == "x"


def test_the_result_is_the_jobs_only_input(folder: Folder) -> None:
    (file,) = folder.run("SELECT sum(amount) AS total FROM input", "it's.csv")
    assert file.location == query_location(str(folder.path / "out"))
    assert (file.format, pq.read_table(file.location).to_pylist()) == ("parquet", [{"total": 2.5}])


def test_a_result_of_an_earlier_start_is_made_again(folder: Folder) -> None:
    folder.run("SELECT 1 AS a FROM input", "it's.csv")
    assert folder.rows("SELECT 2 AS a FROM input LIMIT 1", "it's.csv") == [{"a": 2}]


def test_columns_of_csv_have_the_types_of_a_job_without_a_query(folder: Folder) -> None:
    (folder.path / "e.csv").write_text(
        '"a ""b",zip,age,old,when,land\n1.5,007,30,true,2027-01-02,NA\nNA,008, NULL ,,,DE\n'
    )
    first, second = folder.rows("SELECT * FROM input", "e.csv")
    assert first == {'a "b': 1.5, "zip": "007", "age": 30, "old": True, "when": "2027-01-02", "land": "NA"}
    assert second == {'a "b': None, "zip": "008", "age": None, "old": None, "when": None, "land": "DE"}
    (folder.path / "f.csv").write_text("n\n" + "1\n" * 30_000 + "twelve\n")
    with pytest.raises(InvalidInput, match="twelve"):
        folder.run("SELECT sum(n) AS n FROM input", "f.csv")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{path}/secret.csv')",
        "SELECT * FROM '{path}/secret.csv'",
        "SELECT content FROM read_text('/etc/hostname')",
        "SELECT nothing FROM input",
        "SELECT id, id FROM other",
    ],
)
def test_only_the_input_can_be_read(folder: Folder, query: str) -> None:
    with pytest.raises(InvalidInput, match="query"):
        folder.run(query.format(path=folder.path), "it's.csv")
    assert not Path(query_location(str(folder.path / "out"))).exists()


@pytest.mark.parametrize("query", ["", "SELEC 1", "SELECT 1; SELECT 2", "CREATE TABLE a AS SELECT 1", "COPY t TO 'x'"])
def test_only_one_select_is_a_query(query: str) -> None:
    with pytest.raises(InvalidInput, match="query"):
        check_query(query)


def test_files_that_duckdb_does_not_read_are_named(folder: Folder) -> None:
    (folder.path / "a.arrow").write_bytes(b"x")
    with pytest.raises(InvalidInput, match=r"a\.arrow"):
        folder.run("SELECT * FROM input", "a.arrow")
    with pytest.raises(InvalidInput, match="these input files are empty"):
        folder.run("SELECT * FROM input", "empty.csv")


def test_a_resumed_job_wants_the_result_that_it_began_with(folder: Folder) -> None:
    files = folder.run("SELECT * FROM input", "it's.csv")
    settings = folder.settings("SELECT * FROM input", "it's.csv")
    assert moved_result(settings, files, BLOBS) == files
    pq.write_table(pa.table({"id": range(1000)}), files[0].location)
    with pytest.raises(Broken, match="has changed"):
        moved_result(settings, files, BLOBS)
    Path(files[0].location).unlink()
    with pytest.raises(Broken, match="no longer exists"):
        moved_result(settings, files, BLOBS)
