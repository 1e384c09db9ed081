"""What is shown of jobs, batches and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.batch.allowance import Allowance
from twoshift.batch.job_host import JobHost
from twoshift.batch.requests.batch_host import BatchHost
from twoshift.batch.requests.files import FileLimits, StoredFiles
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import NotFound
from twoshift.serve.http.jobs import NoJobs
from twoshift.server_services import ServerServices, service_metrics
from twoshift.store.batches import SqlBatches
from twoshift.store.database import Database
from twoshift.store.files import SqlFiles
from twoshift.store.jobs import SqlJobs


def test_all_states_are_there_from_the_start_and_batches_as_long_as_they_are_this_servers(tmp_path: Path) -> None:
    database, nobody = Database(f"sqlite:///{tmp_path}/state.db"), NoJobs("none")
    files = StoredFiles(SqlFiles(database), f"{tmp_path}/files", lambda _: LocalBlobs(), FileLimits())

    def no_fleet(name: str) -> Any:
        raise NotFound("model", name, "none")

    jobs = JobHost(SqlJobs(database), no_fleet, lambda _: Allowance(lambda _: LocalBlobs()))
    services = ServerServices(jobs, nobody, BatchHost(SqlBatches(database), files, jobs, dict), nobody, nobody)

    def shown() -> dict[str, Sequence[tuple[Any, ...]]]:
        return {name: rows for _, name, _, _, rows in service_metrics(services)()}

    assert shown()["batches"] == shown()["oldest_batch_seconds"] == shown()["overdue_jobs"] == []
    services.start()
    assert dict(shown()["schedule_runs"]) == {"submitted": 0, "skipped": 0, "missed": 0, "failed": 0}
    assert ("in_progress", 0) in shown()["batches"]
    assert shown()["overdue_jobs"] == [(0,)]
    assert shown()["running_jobs"] == []
    assert shown()["oldest_batch_seconds"] == [(0.0,)]
    assert services.close(30.0)
    assert shown()["batches"] == shown()["oldest_batch_seconds"] == []
