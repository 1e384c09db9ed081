"""A database that release 0.1 has written opens in this one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.policy.job_states import JobMove
from twoshift.store.batches import SqlBatches
from twoshift.store.database import Database
from twoshift.store.files import SqlFiles
from twoshift.store.jobs import SqlJobs
from twoshift.types import BatchStatus, JobKindName, JobState

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
