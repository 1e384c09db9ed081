"""Parts to files: in order, once, the same however often it is tried."""

from __future__ import annotations

import contextlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("sqlalchemy")

import msgspec

from twoshift.batch.allowance import Allowance
from twoshift.batch.inputs import ShardTarget, cut, resolve
from twoshift.batch.job_host import JobHost
from twoshift.batch.kinds.request_lines import not_run_line, read_line, response_line
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location, plan_location
from twoshift.batch.requests.batch_host import BatchHost
from twoshift.batch.requests.files import FileLimits, FileUpload, StoredFiles, staged_path
from twoshift.batch.requests.finalize import NotDone, finalize
from twoshift.batch.requests.retry import write_retried
from twoshift.batch.requests.room import CheckStorage, unlimited
from twoshift.batch.requests.wanted import check_wanted, fingerprint, new_record, window_s
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.response_lines import LINES, ResponseLinesSink
from twoshift.batch_ports import BatchRecord, BatchWanted
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput, NotFound, TooLarge, TryLater
from twoshift.ports import JobRecord
from twoshift.serve.tenants import Tenant, TenantSettings
from twoshift.store.batches import SqlBatches
from twoshift.store.database import Database
from twoshift.store.files import SqlFiles
from twoshift.store.jobs import SqlJobs
from twoshift.types import BatchStatus, JobState

GONE = NotDone("batch_expired", "too late")
IDS = [str(k) for k in range(20)]


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(tmp_path: Path, clock: Clock) -> StoredFiles:
    store = SqlFiles(Database(f"sqlite:///{tmp_path}/state.db"))
    return StoredFiles(store, f"{tmp_path}/files", lambda _: LocalBlobs(), FileLimits(max_bytes=10_000), clock)


def uploaded(desk: StoredFiles, data: bytes) -> str:
    upload = desk.upload("alice")
    upload.begin()
    upload.write(data)
    return upload.finish("r.jsonl", "batch", None).id


def limited(most: int) -> CheckStorage:
    return Tenant("alice", TenantSettings(stored_bytes=most)).check_storage


@pytest.fixture
def batch(desk: StoredFiles) -> BatchRecord:
    data = b"".join(b'{"custom_id":"%b","method":"POST","url":"u","body":{}}\n' % each.encode() for each in IDS)
    return new_record(BatchWanted(uploaded(desk, data), "/v1/embeddings", "24h"), "batch_x", "alice", desk)


def planned(desk: StoredFiles, batch: BatchRecord) -> Plan:
    location, folder = desk.location(batch.input_file_id), desk.folder(batch.id)
    settings = JobSettings(
        inputs=(location,), output=folder, model="m", endpoint="/v1/embeddings", output_format="lines",
        input_format="jsonl",
    )  # fmt: skip
    files = tuple(resolve([location], desk.blobs_for, "jsonl"))
    shards = cut(files, desk.blobs_for, ShardTarget(rows=5))
    plan = Plan.make(settings, PlannedModel("m", "sum", "fp32", ()), files, shards, LINES, RowFigures(0.01))
    desk.blobs.create(plan_location(folder), msgspec.json.encode(plan))
    return plan


def committed(desk: StoredFiles, plan: Plan, shard: int) -> None:
    """The second of each shard has failed."""
    location = part_location(plan, shard)
    staged = desk.blobs.staging(location) / f"part-{shard}"
    part = ResponseLinesSink().open(staged, LINES)
    ids = IDS[5 * shard : 5 * shard + 5]
    lines = [response_line("batch_x", each, b'{"of":%b}' % each.encode()) for each in ids]
    errors = [None, "Wrong", None, None, None]
    part.write(pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()), pa.array(errors, pa.string())], schema=LINES))
    part.finish(PartStats(shard, 5, 1, 50, 0, 1.0, 1.0, "w", {"Wrong": 1}))
    assert desk.blobs.publish(staged, location)


def ids_in(desk: StoredFiles, file: Any) -> list[str]:
    return [read_id(line) for line in Path(desk.location(file.id)).read_bytes().splitlines()]


def read_id(line: bytes) -> str:
    return json.loads(line)["custom_id"]


def test_what_is_done_and_what_is_not_are_told_in_the_order_of_the_input(desk: StoredFiles, batch: BatchRecord) -> None:
    plan = planned(desk, batch)
    for shard in (3, 0, 1):
        committed(desk, plan, shard)
    done = finalize(desk, batch, GONE)
    assert (done.completed, done.failed, done.tokens) == (12, 8, 150)
    assert ids_in(desk, done.output) == [each for each in IDS if int(each) % 5 != 1 and not 10 <= int(each) < 15]
    assert ids_in(desk, done.error) == ["1", "6", "10", "11", "12", "13", "14", "16"]
    assert done.output is not None
    assert (done.output.id, done.output.owner, done.output.purpose) == (batch.output_id, "alice", "batch_output")
    assert done.output.expires_unix_s == done.output.created_unix_s + batch.output_expires_s


@pytest.mark.parametrize(("shards", "status"), [(4, BatchStatus.COMPLETED), (3, BatchStatus.EXPIRED)])
def test_a_batch_whose_window_ends_after_its_last_request_is_completed(
    desk: StoredFiles, batch: BatchRecord, tmp_path: Path, shards: int, status: BatchStatus
) -> None:
    plan, database = planned(desk, batch), Database(f"sqlite:///{tmp_path}/state.db")
    for shard in range(shards):
        committed(desk, plan, shard)
    store, jobs = SqlBatches(database), SqlJobs(database)
    store.add_batch(batch, 0.0)
    store.checked_batch(batch.id, "m", 20)
    jobs.add(JobRecord(batch.id, {}, JobState.CANCELLED, 1.0, 1.0, owner="alice"))

    def no_fleet(name: str) -> Any:
        raise NotFound("model", name, "none")

    host = BatchHost(store, desk, JobHost(jobs, no_fleet, lambda _: Allowance(desk.blobs_for)), lambda: {"m": "m"})
    host.start()
    host.wake(batch.id)
    while not host.get(batch.id, None).status.is_over:
        time.sleep(0.01)
    assert host.close(30.0)
    assert host.get(batch.id, None).status is status


def test_a_part_that_comes_too_late_changes_nothing(desk: StoredFiles, batch: BatchRecord) -> None:
    """As after a kill between the files and the database: who tries again says the same, and not another word."""
    plan = planned(desk, batch)
    committed(desk, plan, 0)
    first = finalize(desk, batch, GONE)
    before = [Path(desk.location(each)).read_bytes() for each in (batch.output_id, batch.error_id)]
    committed(desk, plan, 1)
    again = finalize(desk, batch, NotDone("batch_cancelled", "another word"))
    assert [Path(desk.location(each)).read_bytes() for each in (batch.output_id, batch.error_id)] == before
    assert again == first
    assert not list(Path(desk.root, "_twoshift", "staging").iterdir())


def test_a_file_that_was_lost_on_the_way_is_made_anew(desk: StoredFiles, batch: BatchRecord) -> None:
    plan = planned(desk, batch)
    committed(desk, plan, 2)
    first = finalize(desk, batch, GONE)
    Path(desk.location(batch.error_id)).unlink()  # as if it had not come so far
    assert finalize(desk, batch, GONE) == first
    assert Path(desk.location(batch.error_id)).exists()


def test_a_batch_that_was_never_planned_has_errors_alone(desk: StoredFiles, batch: BatchRecord) -> None:
    done = finalize(desk, batch, GONE)
    assert (done.output, done.completed, done.failed) == (None, 0, 20)
    assert ids_in(desk, done.error) == IDS
    line = Path(desk.location(batch.error_id)).read_bytes().splitlines()[0] + b"\n"
    assert line == not_run_line("batch_x", "0", "batch_expired", "too late")


def test_a_damaged_part_is_named(desk: StoredFiles, batch: BatchRecord) -> None:
    plan = planned(desk, batch)
    Path(part_location(plan, 0)).write_bytes(b"no part\n")
    with pytest.raises(Broken, match="part-000000"):
        finalize(desk, batch, GONE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("first_full", [0, 1])
def test_a_full_disk_is_tried_later_and_leaves_nothing(
    desk: StoredFiles, batch: BatchRecord, monkeypatch: pytest.MonkeyPatch, first_full: int
) -> None:
    """Small files stay in the buffer, so that it is their close that fails."""
    plan = planned(desk, batch)
    committed(desk, plan, 0)
    made = list[Path]()

    def full(blobs: Any, location: str) -> Path:
        made.append(staged_path(blobs, location))
        if len(made) > first_full:
            made[-1].symlink_to("/dev/full")
        return made[-1]

    monkeypatch.setattr("twoshift.batch.requests.finalize.staged_path", full)
    with pytest.raises(TryLater, match="No space left"):
        finalize(desk, batch, GONE)
    assert len(made) == 2
    assert not list(Path(desk.root, "_twoshift", "staging").iterdir())
    monkeypatch.undo()
    assert finalize(desk, batch, GONE).completed == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_upload_to_a_full_disk_is_tried_later_and_leaves_nothing(
    desk: StoredFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(blobs: Any, location: str) -> Path:
        path = staged_path(blobs, location)
        path.symlink_to("/dev/full")
        return path

    monkeypatch.setattr("twoshift.batch.requests.files.staged_path", full)
    upload = desk.upload("alice")
    upload.begin()
    upload.write(b"abc")
    with pytest.raises(TryLater, match="No space left"):
        upload.finish("r.jsonl", "batch", None)
    upload.abort()
    assert not list(Path(desk.root, "_twoshift", "staging").iterdir())


def test_a_retry_has_only_what_failed(desk: StoredFiles, batch: BatchRecord) -> None:
    plan = planned(desk, batch)
    for shard in range(4):
        committed(desk, plan, shard)
    done = finalize(desk, batch, GONE)
    assert done.error is not None
    desk.store.add_file(done.error)
    file_id = write_retried(desk, replace(batch, error_file_id=done.error.id), unlimited)
    lines = Path(desk.location(file_id)).read_bytes().splitlines()
    assert [read_line(line).custom_id for line in lines] == ["1", "6", "11", "16"]
    desk.remove(batch.input_file_id)
    with pytest.raises(InvalidInput, match="was deleted"):
        write_retried(desk, replace(batch, error_file_id=done.error.id), unlimited)


def test_a_retry_for_which_there_is_no_room_is_refused(desk: StoredFiles, batch: BatchRecord) -> None:
    done = finalize(desk, batch, GONE)
    assert done.error is not None
    desk.store.add_file(done.error)
    failed = replace(batch, error_file_id=done.error.id)
    more = desk.get(batch.input_file_id).size_bytes
    used = desk.store.stored_bytes("alice")
    with pytest.raises(TooLarge, match=f"a file of {more:,} bytes"):
        write_retried(desk, failed, limited(used + more - 1))
    assert desk.store.stored_bytes("alice") == used
    write_retried(desk, failed, limited(used + more))


def test_files_that_come_side_by_side_do_not_share_the_same_room(desk: StoredFiles) -> None:
    check = limited(100)
    first, second, other = (desk.upload(who, 60, check) for who in ("alice", "alice", "bob"))
    first.begin()
    other.begin()
    with pytest.raises(TooLarge, match="stores or uploads 60 of 100 bytes"):
        second.begin()
    first.write(b"x" * 30)
    first.finish("a", "batch", None)
    late, third, fourth = (desk.upload("alice", 70, check) for _ in range(3))
    late.abort()
    late.begin()  # nobody waits for it: it takes no room
    third.begin()
    third.abort()
    fourth.begin()
    for each in (second, other, fourth):
        each.abort()


def test_of_many_at_once_no_more_begin_than_there_is_room_for(desk: StoredFiles) -> None:
    uploads = [desk.upload("alice", 300, limited(1000)) for _ in range(16)]

    def begun(upload: FileUpload) -> bool:
        with contextlib.suppress(TooLarge):
            upload.begin()
            return True
        return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(begun, uploads)) == 3
    for each in uploads:
        each.abort()


def test_files_are_whole_or_not_there(desk: StoredFiles) -> None:
    upload = desk.upload("alice")
    upload.begin()
    upload.write(b"x" * 10_000)
    with pytest.raises(TooLarge, match="10,000"):
        upload.write(b"x")
    upload.abort()
    assert not [path for path in Path(desk.root).rglob("*") if path.is_file()]
    assert not desk.list("alice", 10, None, False, None)
    assert desk.store.stored_bytes("alice") == 0
    file = desk.get(uploaded(desk, b"abc"), "alice")
    with desk.open(file) as found:
        assert found.read() == b"abc"
    assert desk.store.stored_bytes("alice") == 3
    with pytest.raises(NotFound):
        desk.get(file.id, "bob")


def test_an_upload_that_is_given_up_before_it_begins_is_never_there(desk: StoredFiles) -> None:
    upload = desk.upload("alice")
    upload.abort()
    upload.begin()
    upload.write(b"abc")
    upload.finish("a", "batch", None)
    assert not [path for path in Path(desk.root).rglob("*") if path.is_file()]


def test_the_janitor_takes_what_expired_and_what_nobody_finished(desk: StoredFiles, clock: Clock) -> None:
    kept, old = uploaded(desk, b"a"), uploaded(desk, b"b")
    upload = desk.upload("alice")
    upload.begin()
    record = desk.get(old)
    desk.store.processed(replace(record, expires_unix_s=clock.now_s + 3600))
    desk.sweep()
    assert {each.id for each in desk.list(None, 10, None, False, None)} == {kept, old}
    clock.now_s += 2 * 86_400
    left = [desk.blobs.staging(desk.location("x")) / f"file-1.ab.staged-{of}" for of in (os.getpid(), "0" * 16)]
    for path in left:
        path.write_bytes(b"of a start that is no more, with the same process id or another")
    own = staged_path(desk.blobs, desk.location("x"))
    own.write_bytes(b"of this one")
    desk.sweep()
    assert {each.id for each in desk.list(None, 10, None, False, None)} == {kept}
    assert not Path(desk.location(old)).exists()
    assert not [path for path in left if path.exists()]
    assert own.exists()
    assert desk.store.stored_bytes(None) == 1
    upload.abort()


@pytest.mark.parametrize(
    ("window", "seconds"), [("24h", 86_400), ("1m", 60), ("90m", 5400), ("8760h", 8760 * 3600), ("5s", 5)]
)
def test_any_window_is_taken(window: str, seconds: float) -> None:
    assert window_s(window) == seconds


@pytest.mark.parametrize("window", ["", "24", "h", "0h", "-1h", "1.5h", "24 h", "1d", "99999h", "24H", "２４h"])
def test_what_is_no_window_is_refused(window: str) -> None:
    with pytest.raises(InvalidInput, match="completion_window"):
        check_wanted(BatchWanted("f", "/v1/embeddings", window))


def test_a_request_that_is_sent_again_is_the_same_and_no_other_is() -> None:
    asked = BatchWanted("f", "/v1/embeddings", "24h", {"a": "1", "b": "2"})
    same = BatchWanted("f", "/v1/embeddings", "24h", {"b": "2", "a": "1"})
    assert fingerprint(asked, "alice") == fingerprint(same, "alice")
    others = [
        fingerprint(asked, "bob"),
        fingerprint(BatchWanted("g", "/v1/embeddings", "24h", {"a": "1", "b": "2"}), "alice"),
        fingerprint(BatchWanted("f", "/v1/rerank", "24h", {"a": "1", "b": "2"}), "alice"),
        fingerprint(BatchWanted("f", "/v1/embeddings", "25h", {"a": "1", "b": "2"}), "alice"),
        fingerprint(BatchWanted("f", "/v1/embeddings", "24h"), "alice"),
        fingerprint(BatchWanted("f", "/v1/embeddings", "24h", {"a": "1", "b": "2"}, 5000.0), "alice"),
        fingerprint(BatchWanted("f", "/v1/embeddings", "24h", {"a": "1", "b": "2"}, retry_of="f"), "alice"),
        fingerprint(replace(asked, models=("a",)), "alice"),
        fingerprint(replace(asked, models=("a", "b")), "alice"),
    ]
    assert len({fingerprint(asked, "alice"), *others}) == 10
    assert fingerprint(replace(asked, models=("b", "a")), "alice") == others[-1]
