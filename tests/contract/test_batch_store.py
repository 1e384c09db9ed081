"""One suite for every store of files and batches; PostgreSQL is a real one, started here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import select

from twoshift.batch_ports import BatchRecord, FileRecord, FileStatus
from twoshift.errors import Elsewhere, InvalidInput, NotFound
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.store.batches import SqlBatches
from twoshift.store.claim import SqlClaim
from twoshift.store.database import Database
from twoshift.store.files import SqlFiles
from twoshift.store.jobs import SqlJobs
from twoshift.store.tables import notices
from twoshift.types import BatchStatus, JobKindName, JobState

pytestmark = pytest.mark.slow


@dataclass
class Stores:
    url: str
    database: Database
    files: SqlFiles
    batches: SqlBatches
    jobs: SqlJobs

    def file(self, file_id: str, owner: str = "alice", **more: object) -> FileRecord:
        """One that is there."""
        made = replace(FileRecord(file_id, owner, 1.0, f"{file_id}.jsonl", size_bytes=10), **more)  # type: ignore[arg-type]
        self.files.add_file(made)
        self.files.processed(made)
        return replace(made, status=FileStatus.PROCESSED)


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/state.db" if is_file else request.getfixturevalue("postgres").url()
    database = Database(url)
    clock = iter(range(100, 10_000))
    batches = SqlBatches(database, clock=lambda: float(next(clock)))
    yield Stores(url, database, SqlFiles(database), batches, SqlJobs(database))
    database.close()


def batch(batch_id: str, owner: str = "alice", file_id: str = "f", **more: object) -> BatchRecord:
    made = BatchRecord(
        batch_id, owner, "/v1/embeddings", file_id, "24h", 50.0, 1000.0, f"print of {batch_id}",
        f"out-{batch_id}", f"err-{batch_id}", 60.0, {"a": "é"}, ("m",),
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_file_is_seen_by_its_owner_once_it_is_there(stores: Stores) -> None:
    stores.files.add_file(FileRecord("a", "alice", 1.0))
    with pytest.raises(NotFound):
        stores.files.file("a", "alice")
    made = stores.file("b", sha256="s", expires_unix_s=9.0, purpose="batch_output")
    assert stores.files.file("b", "alice") == made == stores.files.file("b")
    with pytest.raises(NotFound):
        stores.files.file("b", "bob")
    assert stores.files.stored_bytes("alice") == 10
    assert stores.files.stored_bytes("bob") == 0


def test_files_have_pages(stores: Stores) -> None:
    for k in range(5):
        stores.file(str(k), purpose="batch" if k % 2 else "batch_output")
    stores.file("bobs", "bob")

    def ids(*asked: object) -> list[str]:
        return [each.id for each in stores.files.list_files("alice", *asked)]  # type: ignore[arg-type]

    assert ids(3) == ["4", "3", "2"]
    assert ids(3, "2") == ["1", "0"]
    assert ids(2, None, True) == ["0", "1"]
    assert ids(9, "1", True) == ["2", "3", "4"]
    assert ids(9, None, False, "batch") == ["3", "1"]
    assert len(stores.files.list_files(None, 10)) == 6
    for unknown in ("nobody", "bobs"):
        with pytest.raises(NotFound, match="after"):
            ids(9, unknown)


def test_what_a_batch_reads_stays_until_it_is_over(stores: Stores) -> None:
    stores.file("f", expires_unix_s=5.0)
    stores.batches.add_batch(batch("b"), 0.0)
    with pytest.raises(InvalidInput, match="cancel b first"):
        stores.files.remove_file("f", "alice")
    assert stores.files.unwanted_files(0.0, 10.0) == []
    stores.batches.end_batch("b", [], errors=[])
    with pytest.raises(NotFound):
        stores.files.remove_file("f", "bob")
    assert stores.files.unwanted_files(0.0, 10.0) == ["f"]
    with pytest.raises(NotFound):
        stores.files.file("f")
    with pytest.raises(NotFound, match="input_file_id"):
        stores.batches.add_batch(batch("c"), 0.0)
    stores.files.forget_file("f")
    assert stores.files.unwanted_files(0.0, 10.0) == []


def test_a_batch_needs_a_file_of_its_owner(stores: Stores) -> None:
    stores.file("f", "bob")
    with pytest.raises(NotFound, match="input_file_id"):
        stores.batches.add_batch(batch("b"), 0.0)


def test_the_same_request_is_one_batch_for_a_while(stores: Stores) -> None:
    stores.file("f")
    first = stores.batches.add_batch(batch("a", fingerprint="p"), 0.0)
    assert stores.batches.add_batch(batch("b", fingerprint="p"), 49.0).id == first.id
    assert stores.batches.add_batch(batch("c", fingerprint="p"), 51.0).id == "c"
    assert stores.batches.same_batch("p", 0.0) is not None
    assert stores.batches.same_batch("q", 0.0) is None


def test_a_batch_that_failed_in_validation_is_no_answer_to_the_next_request(stores: Stores) -> None:
    stores.file("f")
    stores.batches.add_batch(batch("a", fingerprint="p"), 0.0)
    stores.batches.end_batch("a", [], errors=[])
    assert stores.batches.same_batch("p", 0.0) is None
    assert stores.batches.add_batch(batch("b", fingerprint="p"), 0.0).id == "b"


def test_a_batch_comes_back_as_it_was_given(stores: Stores) -> None:
    stores.file("f")
    assert stores.batches.add_batch(batch("b"), 0.0) == stores.batches.batch("b", "alice") == batch("b")
    for owner, batch_id in (("bob", "b"), ("alice", "c")):
        with pytest.raises(NotFound):
            stores.batches.batch(batch_id, owner)


def test_batches_have_pages(stores: Stores) -> None:
    stores.file("f")
    for k in range(5):
        stores.batches.add_batch(batch(str(k)), 0.0)
    assert [each.id for each in stores.batches.list_batches("alice", 2)] == ["4", "3"]
    assert [each.id for each in stores.batches.list_batches(None, 9, "3")] == ["2", "1", "0"]
    assert stores.batches.list_batches("bob", 9) == []
    with pytest.raises(NotFound, match="after"):
        stores.batches.list_batches("bob", 9, "3")


def test_batches_are_counted_by_status(stores: Stores) -> None:
    assert stores.batches.counted_batches() == {}
    stores.file("f")
    for number, end in enumerate((None, BatchStatus.COMPLETED, None, None, None)):
        made = batch(f"b{number}", end=end, fingerprint=f"{number}", created_unix_s=100.0 + number)
        stores.batches.add_batch(made, 0.0)
    stores.jobs.add(JobRecord("b3", {"output": "b3"}, JobState.QUEUED, 1.0, 1.0))
    stores.batches.cancel_batch("b4")
    assert stores.batches.counted_batches() == {
        "validating": (2, 100.0), "completed": (1, 101.0), "in_progress": (1, 103.0), "cancelling": (1, 104.0),
    }  # fmt: skip


def test_a_status_follows_from_the_job(stores: Stores) -> None:
    stores.file("f")
    stores.batches.add_batch(batch("b"), 0.0)
    stores.batches.checked_batch("b", "m", 5)
    found = stores.batches.batch("b")
    assert (found.status, found.model, found.total, found.times) == (BatchStatus.VALIDATING, "m", 5, {})
    stores.jobs.add(JobRecord("b", {"output": "b"}, JobState.QUEUED, 7.0, 7.0, kind=JobKindName.REQUESTS))
    for move, status in (
        (JobMove.BEGIN, BatchStatus.IN_PROGRESS),
        (JobMove.FAIL, BatchStatus.FINALIZING),
        (JobMove.RESUME, BatchStatus.IN_PROGRESS),
    ):
        assert stores.jobs.move("b", move)
        found = stores.batches.batch("b")
        assert (found.status, found.times["in_progress"]) == (status, 7.0)
        assert ("finalizing" in found.times) is (status is BatchStatus.FINALIZING)


def test_a_batch_is_cancelled_until_it_is_over(stores: Stores) -> None:
    stores.file("f")
    stores.batches.add_batch(batch("b"), 0.0)
    cancelled = stores.batches.cancel_batch("b")
    assert cancelled is not None
    assert (cancelled.status, list(cancelled.times)) == (BatchStatus.CANCELLING, ["cancelling"])
    ended = stores.batches.end_batch("b", [], errors=[])
    assert ended is not None
    assert ended.status is BatchStatus.CANCELLED
    assert stores.batches.cancel_batch("b") is None


@pytest.mark.parametrize(
    ("job", "not_run", "status"),
    [
        (JobState.DONE, 0, BatchStatus.COMPLETED),
        (JobState.FAILED, 2, BatchStatus.COMPLETED),
        (JobState.CANCELLED, 2, BatchStatus.EXPIRED),
        (JobState.CANCELLED, 0, BatchStatus.COMPLETED),
    ],
)
def test_the_end_is_told_with_its_files_and_once(
    stores: Stores, job: JobState, not_run: int, status: BatchStatus
) -> None:
    stores.file("f")
    stores.batches.add_batch(batch("b"), 0.0)
    stores.jobs.add(JobRecord("b", {"output": "b"}, job, 1.0, 1.0, kind=JobKindName.REQUESTS))
    output = FileRecord("out-b", "alice", 2.0, "o", "batch_output", 5)
    ended = list[BatchRecord | None]()

    def end() -> None:
        ended.append(stores.batches.end_batch("b", [output], completed=3, not_run=not_run, output_file_id="out-b"))

    threads = [threading.Thread(target=end) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (found,) = [each for each in ended if each is not None]
    assert (found.status, found.completed, found.output_file_id) == (status, 3, "out-b")
    assert stores.files.file("out-b", "alice").size_bytes == 5
    told = stores.database.run(lambda connection: connection.execute(select(notices)).all())
    assert [(each.owner, each.kind, each.subject) for each in told] == [("alice", f"batch.{status}", "b")]
    assert told[0].data["output_file_id"] == "out-b"
    assert stores.batches.unswept_batches() == ["b"]
    stores.batches.swept_batch("b")
    assert stores.batches.unswept_batches() == []


def test_what_has_to_be_done_is_found_without_the_rest(stores: Stores) -> None:
    stores.file("f")
    for name in ("new", "runs", "cancelled", "ran", "late", "over"):
        stores.batches.add_batch(batch(name, expires_unix_s=5.0 if name == "late" else 1000.0), 0.0)
    stores.batches.cancel_batch("cancelled")
    running = dict.fromkeys(("runs", "cancelled"), JobState.RUNNING)
    states = {**running, "ran": JobState.DONE, "late": JobState.QUEUED, "over": JobState.DONE}
    for name, state in states.items():
        stores.jobs.add(JobRecord(name, {"output": name}, state, 1.0, 1.0, progress={"rows_committed": 7}))
    stores.batches.end_batch("over", [])
    assert stores.batches.stirring_batches() == ["new", "cancelled", "ran"]
    assert stores.batches.due_batches(10.0) == ["late"]
    assert stores.batches.batch("runs").progress == {"rows_committed": 7}
    assert stores.batches.batch("new").progress is None


def test_who_has_not_the_claim_changes_nothing(stores: Stores) -> None:
    stores.file("f")
    claim = SqlClaim(stores.database)
    assert claim.take()
    others = Database(stores.url)
    other = SqlClaim(others)
    files, batches = SqlFiles(stores.database, claim=other), SqlBatches(stores.database, claim=other)
    with pytest.raises(Elsewhere):
        files.add_file(FileRecord("g", "alice", 1.0))
    with pytest.raises(Elsewhere):
        files.remove_file("f")
    with pytest.raises(Elsewhere):
        batches.add_batch(batch("b"), 0.0)
    assert files.file("f").id == "f"
    claim.release()
    others.close()
