"""A database that release 0.1 has written opens in this one."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from twoshift import store
from twoshift.errors import InvalidInput
from twoshift.policy.job_states import JobMove
from twoshift.store.batches import SqlBatches
from twoshift.store.database import Database, newest_revision
from twoshift.store.files import SqlFiles
from twoshift.store.jobs import SqlJobs
from twoshift.store.usage import SqlUsage
from twoshift.types import BatchStatus, JobKindName, JobState
from twoshift.usage_ports import DeviceUsage

DONE, GOING = "batch_aaaaaaaaaaaaaaaaaaaaaaaa", "batch_bbbbbbbbbbbbbbbbbbbbbbbb"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "fleet.db"
    with sqlite3.connect(path) as connection:
        connection.executescript((Path(__file__).parent / "release_0_1.sql").read_text())
    connection.close()
    opened = Database(f"sqlite:///{path}")
    yield opened
    opened.close()


def test_jobs_of_release_0_1_have_their_kinds_states_and_turns(database: Database) -> None:
    jobs = SqlJobs(database)
    found = {job.id: (job.kind, job.state) for job in jobs.list()}
    assert found == {
        "job-0123456789ab": (JobKindName.TABLE, JobState.DONE),
        "job-aaaaaaaaaaaa": (JobKindName.TABLE, JobState.QUEUED),
        DONE: (JobKindName.REQUESTS, JobState.DONE),
        GOING: (JobKindName.REQUESTS, JobState.RUNNING),
    }
    assert [job.id for job in jobs.waiting(9)] == ["job-aaaaaaaaaaaa", GOING]
    assert [text for _, text in jobs.notes("job-0123456789ab")] == ["m over a.parquet to /data/out-1"]


def test_batches_and_files_of_release_0_1_are_as_they_were(database: Database) -> None:
    batches, files = SqlBatches(database), SqlFiles(database)
    done, going = batches.batch(DONE, "acme"), batches.batch(GOING, "acme")
    assert (done.status, done.completed, done.metadata) == (BatchStatus.COMPLETED, 2, {"a": "b"})
    assert (going.status, going.progress) == (BatchStatus.IN_PROGRESS, {"rows": 1, "errors": 0})
    assert {file.id for file in files.list_files("acme", 10)} == {"file-in1", "file-in2", f"file-out-{DONE}"}


def test_only_the_end_of_a_table_is_a_notice_of_a_job(database: Database) -> None:
    jobs = SqlJobs(database)
    for job_id in ("job-aaaaaaaaaaaa", GOING):
        jobs.move(job_id, JobMove.BEGIN)
        assert jobs.move(job_id, JobMove.FINISH)
    with sqlite3.connect(str(database.file)) as connection:
        told = connection.execute("SELECT subject FROM notices WHERE subject IN ('job-aaaaaaaaaaaa', ?)", [GOING])
        assert told.fetchall() == [("job-aaaaaaaaaaaa",)]
    connection.close()


def test_usage_that_was_counted_before_goes_on_as_version_1(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with sqlite3.connect(path) as connection:
        connection.executescript((Path(__file__).parent / "release_0_1.sql").read_text())
        names = [row[1] for row in connection.execute("PRAGMA table_info(usage_days)")]
        values = {"day": "2026-01-31", "tenant": "red", "lane": "live", "model": "m", "writer": "w", "usd": None}
        row = [values.get(name, 3) for name in names]
        connection.execute(f"INSERT INTO usage_days VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    connection.close()
    opened = Database(f"sqlite:///{path}")
    usage = SqlUsage(opened)
    usage.put("w", [DeviceUsage("2026-01-31", "red", "live", "m", rows=1, version="2")])
    found = usage.sums("2026-01-01", "2026-01-31", ["version"])
    assert [(each.version, each.rows) for each in found] == [("1", 3), ("2", 1)]
    usage.put("w", [DeviceUsage("2026-01-31", "red", "live", "m", rows=5, version="2")])
    assert [each.rows for each in usage.sums("2026-01-01", "2026-01-31", ["version"])] == [3, 5]
    usage.close()


def test_a_database_of_a_newer_release_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    Database(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_later'")
    connection.close()
    with pytest.raises(InvalidInput, match=r"has migrated this database \(to 9999_later; this version knows"):
        Database(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999_later",)]
    connection.close()


def test_a_database_of_this_release_is_opened_without_alembic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    Database(url).close()
    monkeypatch.setitem(sys.modules, "alembic", None)
    Database(url).close()


def test_the_newest_revision_is_the_one_that_alembic_leads_to() -> None:
    from alembic.script import ScriptDirectory

    assert newest_revision() == ScriptDirectory(str(Path(store.__file__).with_name("migrations"))).get_current_head()
