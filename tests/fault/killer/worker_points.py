"""`main` runs in a job's folder: kills a worker process at each write point of its own, and sees the job to its end.

Prints the points at which one was killed.
"""

from __future__ import annotations

from pathlib import Path

from forked_pool import ForkedPool
from sitecustomize import install

from twoshift.batch.device import WorkDevice
from twoshift.batch.job import Job
from twoshift.batch.settings import JobSettings
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.policy.strikes import Strikes
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import open_job_device


def open_killed(settings: JobSettings) -> WorkDevice:
    """In a worker: it dies at its write of the number that the folder is named after, unless another one has."""
    at = settings.output.removeprefix("out-")
    install("self", int(at), f"mark-{at}", str(Path(settings.output).absolute()))
    return open_job_device(settings)


def main() -> None:
    """All of it."""
    # A shard whose worker has died waits for a second, here at each of its writes
    Strikes.backoff_s = lambda self, shard: 0.01
    at = 1
    while True:
        settings = JobSettings(
            inputs=("docs",), output=f"out-{at}", model="m.py:Square", columns=("x",), keep=("id",), shard_rows=50,
        )  # fmt: skip
        ending = (
            Job(settings, blobs_for, ForkedPool(settings, 1, open_killed, blobs_for))
            .run(lambda _: None, lambda _: None)
            .ending
        )
        if EXIT_CODES[ending] != 0:
            raise SystemExit(f"the job whose worker was killed at write {at} ended with {ending}")
        if not Path(f"mark-{at}").exists():
            return
        print(at, flush=True)
        at += 1
