"""Batches of several tenants on a server, without a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.batch.allowance import Allowance
from twoshift.batch.job_host import JobHost
from twoshift.batch.requests import batch_steps
from twoshift.batch.requests.batch_host import BatchHost
from twoshift.batch.requests.check import Checked, check_input
from twoshift.batch.requests.files import FileLimits, StoredFiles
from twoshift.batch.requests.wanted import new_record
from twoshift.batch_ports import BatchWanted
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import NotFound
from twoshift.ports import JobRecord
from twoshift.store.batches import SqlBatches
from twoshift.store.database import Database
from twoshift.store.files import SqlFiles
from twoshift.store.jobs import SqlJobs
from twoshift.types import BatchStatus, JobState

LINE = b'{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"m","input":"a"}}\n'


class House:
    """The files of red take as long as the gate is closed."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        database = Database(f"sqlite:///{path}/state.db")
        self.store, self.jobs = SqlBatches(database), SqlJobs(database)
        self.files = StoredFiles(SqlFiles(database), f"{path}/files", lambda _: LocalBlobs(), FileLimits())
        runs = JobHost(self.jobs, self.no_fleet, lambda _: Allowance(self.files.blobs_for))
        self.host = BatchHost(self.store, self.files, runs, dict)
        monkeypatch.setattr(batch_steps, "check_input", self.check)
        self.host.start()

    def no_fleet(self, name: str) -> Any:
        raise NotFound("model", name, "none")

    def check(self, file: Any, *given: Any) -> Checked:
        if file.read(3) == b"red":
            self.gate.wait(60)
        file.seek(0)
        return check_input(file, *given)

    def uploaded(self, owner: str, data: bytes) -> str:
        upload = self.files.upload(owner)
        upload.begin()
        upload.write(data)
        return upload.finish("r.jsonl", "batch", None).id

    def ask(self, owner: str, data: bytes) -> str:
        return self.host.create(BatchWanted(self.uploaded(owner, data), "/v1/embeddings", "24h"), owner).id

    def wait(self, batch_id: str, status: BatchStatus) -> None:
        until_s = time.monotonic() + 30
        while (found := self.host.get(batch_id, None)).status is not status:
            assert time.monotonic() < until_s, found
            time.sleep(0.01)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    made = House(tmp_path, monkeypatch)
    yield made
    made.gate.set()
    made.host.close(30.0)


def test_long_files_of_one_tenant_hold_up_no_other_and_no_end(house: House) -> None:
    red = [house.ask("red", b"red") for _ in range(9)]
    house.wait(house.ask("blue", b"blue"), BatchStatus.FAILED)  # looked through, and no batch
    house.jobs.add(JobRecord("batch_x", {}, JobState.CANCELLED, 1.0, 1.0, owner="red"))
    wanted = BatchWanted(house.uploaded("red", LINE), "/v1/embeddings", "24h")
    house.store.add_batch(new_record(wanted, "batch_x", "red", house.files), 0.0)
    house.store.checked_batch("batch_x", "m", 1)
    house.host.cancel("batch_x", "red")
    house.wait("batch_x", BatchStatus.CANCELLED)
    assert {house.host.get(each, None).status for each in red} == {BatchStatus.VALIDATING}
    house.gate.set()
    for each in red:
        house.wait(each, BatchStatus.FAILED)


def test_batches_that_are_cancelled_while_their_files_wait_come_to_their_end(house: House) -> None:
    red = [house.ask("red", b"red") for _ in range(9)]
    for each in (red[0], red[-1]):
        house.host.cancel(each, "red")
    house.gate.set()
    for each in (red[0], red[-1]):
        house.wait(each, BatchStatus.CANCELLED)
    for each in red[1:-1]:
        house.wait(each, BatchStatus.FAILED)
