"""Jobs under full disks, damaged files, hanging and dying workers, and endpoints that fail."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import JobFolder, end_group, wait_for
from s3_server import CREDENTIALS, FaultProxy, make_bucket, moto_server

from twoshift.ports import Blobs

pytestmark = pytest.mark.slow
# Rows that the job's first look does not see: it takes 64 of each file
LATE_ROW = 170


def _lease(job: JobFolder, seconds: float) -> None:
    """The job as a file, with the one setting that has no option."""
    lines = ['inputs = "docs"', 'model = "m.py:Square"', 'columns = ["x"]', 'keep = ["id"]', "shard_rows = 50"]
    (job.path / "job.toml").write_text("\n".join([*lines, 'output = "out"', f"lease_seconds = {seconds}"]))
    job.options = ["job.toml"]


def test_a_worker_that_hangs_is_replaced(job: JobFolder) -> None:
    job.model(f"if (x == {LATE_ROW}).any() and not Path('hung').exists(): Path('hung').touch(); time.sleep(1000)")
    _lease(job, 2)
    told = json.loads(job.run("--json").out)
    assert (job.path / "hung").exists()
    assert any("no progress for 2 s" in message for message in told["failures"])
    job.check_squares(300)


def test_a_row_that_kills_every_worker_costs_its_shard_and_no_other(job: JobFolder) -> None:
    job.model(f"if (x == {LATE_ROW}).any(): os._exit(7)")
    done = job.run(expect=5)
    assert "Shard 3 could not be done: docs/001.parquet" in done.out
    assert "the worker died: ended with code 7" in done.out
    ids = [row["id"] for row in job.rows()]
    assert ids == [k for k in range(300) if not 150 <= k < 200]
    assert not (job.out / "_SUCCESS").exists()
    job.check_clean()


def test_a_slow_shard_gets_a_second_copy_and_the_first_commit_wins(job: JobFolder) -> None:
    slow = "if (x == 270).any() and not Path('slow').exists(): Path('slow').touch(); time.sleep(30)"
    job.model(f"time.sleep(0.002)\n        {slow}")
    job.run("--workers", "2")
    report = json.loads((job.out / "_twoshift" / "report.json").read_text())
    assert report["speculated"] >= 1
    assert report["elapsed_s"] < 25
    job.check_squares(300)


def test_a_truncated_file_is_named(job: JobFolder) -> None:
    path = job.path / "docs" / "001.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    done = job.run(expect=None)
    assert done.code in (1, 2)
    assert "docs/001.parquet" in done.err
    assert list(job.out.glob("part-*")) == []


@pytest.fixture
def small_out(job: JobFolder) -> Iterator[Path]:
    job.out.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(job.out)]
    made = subprocess.run(words, capture_output=True)
    if made.returncode:
        pytest.skip(f"no small disk here: {made.stderr.decode().strip()}")
    try:
        yield job.out
    finally:
        subprocess.run(["umount", "-l", str(job.out)], check=True)


def test_a_full_disk_is_told_and_the_job_goes_on_when_there_is_room(job: JobFolder, small_out: Path) -> None:
    texts = pa.array([os.urandom(1500).hex() for _ in range(300)])
    pq.write_table(
        pa.table({"id": range(300), "x": [float(k) for k in range(300)], "t": texts}), job.path / "big.parquet"
    )
    job.options = ["big.parquet", "--model", "m.py:Square", "--columns", "x", "--keep", "id,t", "--shard-rows", "50"]
    ballast = small_out / "_ballast"
    ballast.write_bytes(bytes(1_750_000))
    done = job.run(expect=75)
    assert "no space is left" in done.err
    committed = len(list(small_out.glob("part-*")))
    assert committed < 6
    ballast.unlink()
    assert f"{committed} of 6 shards done" in job.run().err
    job.check_squares(300)
    assert [row["t"] for row in job.rows()] == texts.to_pylist()


def test_a_disk_without_room_for_a_plan_is_told(job: JobFolder, small_out: Path) -> None:
    with (small_out / "_ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)) == 4096 and os.statvfs(small_out).f_bavail:
            pass
    assert "no space is left" in job.run(expect=75).err
    (small_out / "_ballast").unlink()
    job.run()
    job.check_squares(300)


class RandomFaults(FaultProxy):
    """Every so many requests one fails, in one way or another."""

    share = 0.2

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._chance = random.Random(1)  # noqa: S311
        self.slow_s = 0.5

    def fault_for(self, method: str) -> str | None:
        self.seen.append(method)
        kinds = [
            "500",
            "503",
            "drop",
            "slow",
            *(["lost", "late"] if method == "PUT" else []),
            *(["cut"] * (method == "GET")),
        ]
        return self._chance.choice(kinds) if self._chance.random() < self.share else None


@pytest.fixture
def s3_job(job: JobFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[JobFolder, RandomFaults]]:
    pytest.importorskip("obstore")
    with moto_server() as endpoint:
        proxy = RandomFaults(endpoint)
        make_bucket(endpoint, "bucket")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        for path in sorted((job.path / "docs").iterdir()):
            _s3(endpoint).write(f"s3://bucket/docs/{path.name}", path.read_bytes())
        job.environment = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": proxy.endpoint,
            "DIRECT": endpoint,
            "TMPDIR": str(job.path),
        }
        job.options = [
            "s3://bucket/docs/",
            "--model",
            "m.py:Square",
            "--columns",
            "x",
            "--keep",
            "id",
            "--shard-rows",
            "50",
        ]
        yield job, proxy
        proxy.close()


def _s3(endpoint: str) -> Blobs:
    from twoshift.blobs.s3 import S3Blobs
    from twoshift.blobs.s3_connection import S3Settings

    return S3Blobs(S3Settings.from_environment({**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}))


def _s3_rows(job: JobFolder) -> list[dict[str, object]]:
    blobs = _s3(job.environment["DIRECT"])
    names = sorted(name for name in blobs.names("s3://bucket/out") if name.startswith("part-"))
    parts = [blobs.read(f"s3://bucket/out/{name}") for name in names]
    assert blobs.stat("s3://bucket/out/_SUCCESS") is not None
    return [row for part in parts for row in pq.read_table(io.BytesIO(part or b"")).to_pylist()]


def test_a_failing_s3_endpoint_loses_nothing(s3_job: tuple[JobFolder, RandomFaults]) -> None:
    job, proxy = s3_job
    job.model("time.sleep(0.01 * len(x))")
    process = job.start("-o", "s3://bucket/out")
    try:
        wait_for(lambda: proxy.seen.count("PUT") >= 3, "a first part")  # the plan, and a part or two
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    finally:
        end_group(process)
    assert "of 6 shards done" in job.run("-o", "s3://bucket/out").err
    rows = _s3_rows(job)
    assert [(row["id"], row["squared"], row["error"]) for row in rows] == [(k, float(k) ** 2, None) for k in range(300)]
    assert len(proxy.seen) > 30
