"""`twoshift run --into` and `twoshift load` as their users have them: kills, stores that fail, words and exit codes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from job_runs import JobFolder
from programs import command, python_path

pytestmark = pytest.mark.slow
INTO = ("--into", "a.sqlite", "--into-table", "squares", "--into-key", "id")
KILLED = """
import os, sys
from twoshift.batch.stores.rows import KeyedRows
from twoshift.cli import main

def end(self, new_rows):  # called between the rows of a part and its mark
    if self.shard == 2:
        os.kill(os.getpid(), 9)
    return then(self, new_rows)

then, KeyedRows.loaded = KeyedRows.loaded, end
sys.exit(main(sys.argv[1:]))
"""


def _stored(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path / "a.sqlite")) as session:
        return session.execute("SELECT id, squared, error FROM squares ORDER BY id").fetchall()


def _load(job: JobFolder, *words: str) -> subprocess.CompletedProcess[str]:
    return command("load", str(job.out), *words, cwd=job.path)


def test_rows_are_in_the_table_when_the_job_is_done_and_the_report_says_so(job: JobFolder) -> None:
    done = job.run(*INTO, "--json")
    assert _stored(job.path) == [(k, float(k) ** 2, None) for k in range(300)]
    load = json.loads(done.out)["load"]
    assert (load["rows"], load["new_rows"], load["shards"], load["table"]) == (300, 300, 6, "squares")
    page = (job.out / "_twoshift" / "report.html").read_text()
    assert "300 rows loaded into a.sqlite, table squares (300 new)" in page
    # Again: nothing is done twice, and another store can be added to the finished job
    assert "nothing was left to do" in job.run(*INTO).out
    done = job.run("--into", "b.sqlite")
    assert "300 rows loaded into b.sqlite, table results (300 new)" in " ".join(done.out.split())
    with closing(sqlite3.connect(job.path / "b.sqlite")) as session:
        assert session.execute("SELECT count(DISTINCT twoshift_row), count(*) FROM results").fetchone() == (300, 300)


def test_a_store_that_fails_at_the_end_leaves_the_parts_and_the_same_command_loads_the_rest(job: JobFolder) -> None:
    job.model("""
        if x.max() > 290 and not os.path.exists("once"):  # the last rows
            os.mkdir("once")
            os.remove("a.sqlite")
            os.mkdir("a.sqlite")  # which cannot be opened
""")
    done = job.run(*INTO, expect=75)
    told = " ".join(done.err.split())
    assert (
        "of 6 parts are loaded into a.sqlite, table squares. The parts in out are kept. To load the rest, run the"
        in told
    )
    assert len(job.rows()) == 300
    assert not (job.out / "_SUCCESS").exists()
    assert json.loads((job.out / "_twoshift" / "report.json").read_text())["load"]["problem"]
    (job.path / "a.sqlite").rmdir()
    job.run(*INTO)
    job.check_squares(300)
    assert len(_stored(job.path)) == 300


@pytest.mark.parametrize("store", ["a.sqlite", "a.duckdb", "a.lance", "qdrant:///points"])
def test_a_kill_between_the_rows_of_a_part_and_its_mark_loses_nothing_and_doubles_nothing(
    job: JobFolder, store: str
) -> None:
    packages = {"a.duckdb": "duckdb", "a.lance": "lance", "qdrant:///points": "qdrant_client"}
    pytest.importorskip(packages.get(store, "sqlite3"))
    job.parquet(files=3, rows=20)
    job.run("--shard-rows", "20")
    words = ["load", "out", "--into", store, "--into-key", "id"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    killed = subprocess.run([sys.executable, "-c", KILLED, *words], cwd=job.path, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = command(*words, "--json", cwd=job.path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["shards"], report["rows"]) == (3, 60)
    again = json.loads(command(*words, "--into-table", "results", "--json", cwd=job.path).stdout)
    assert (again["shards"], again["new_rows"], again["rows_per_s"]) == (3, report["new_rows"], None)  # nothing to do
    assert report["new_rows"] == (60 if ":" not in store else 40)  # Qdrant: the points of the part were there already


def test_what_is_wrong_is_said_before_the_model_is_loaded(job: JobFolder) -> None:
    job.model("raise SystemExit('the model was loaded')")
    with closing(sqlite3.connect(job.path / "a.sqlite")) as session:
        session.execute("CREATE TABLE squares (id INTEGER PRIMARY KEY, other TEXT)")
    done = job.run(*INTO, expect=2)
    assert "a table with the column error (ALTER TABLE squares ADD COLUMN error TEXT)" in done.err
    assert "Loading m.py" not in done.err
    assert not job.out.joinpath("_twoshift", "plan.json").exists()
    assert "--into-key" in job.run("--into", "a.sqlite", "--into-key", "name", expect=2).err
    assert "a.csv" in job.run("--into", "a.csv", expect=2).err
    assert "--into-key: 'id' cannot be used without --into" in job.run("--into-key", "id", expect=2).err


def test_a_password_is_not_written_beside_the_parts(job: JobFolder) -> None:
    pytest.importorskip("psycopg")
    done = job.run("--into", "postgresql://me:pAssw0rd@127.0.0.1:1/x", expect=75)
    assert "postgresql://me@127.0.0.1:1/x" in done.err
    job.run()
    written = b"".join(path.read_bytes() for path in job.out.rglob("*") if path.is_file())
    assert b"pAssw0rd" not in written
    assert "pAssw0rd" not in done.err + done.out


def test_the_parts_of_a_job_that_is_not_done_are_loaded_in_order(job: JobFolder) -> None:
    job.run()
    (job.out / "part-000004.parquet").rename(job.path / "kept")
    (job.out / "_SUCCESS").unlink()
    done = _load(job, *INTO)
    assert (done.returncode, len(_stored(job.path))) == (3, 200)
    assert "4 of 6 parts are loaded" in " ".join(done.stdout.split())
    (job.path / "kept").rename(job.out / "part-000004.parquet")
    assert _load(job, *INTO).returncode == 0
    assert len(_stored(job.path)) == 300
