"""Jobs under full disks, damaged files, hanging and dying workers, and endpoints that fail."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import JobFolder, end_group, wait_for
from programs import python_path
from s3_server import CREDENTIALS, FaultProxy, make_bucket, moto_server

from twoshift.blobs.s3 import S3Settings
from twoshift.ports import Blobs

pytestmark = pytest.mark.slow
KILLER = str(Path(__file__).parent / "killer")
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


def _stopping(part: Path) -> dict[str, str]:
    """A run whose first worker to publish that part stops right before it."""
    return {"PYTHONPATH": python_path(KILLER), "LATE_PART": part.name, "LATE_MARK": str(part.parent.parent / "late")}


def _stopped_worker(job: JobFolder) -> int:
    """Its process."""
    late = job.path / "late"
    wait_for(lambda: late.exists() and late.read_text().endswith("\n"), "a worker that stops")
    return int(late.read_text())


def test_a_worker_that_is_stopped_loses_its_shard_to_another(job: JobFolder) -> None:
    _lease(job, 2)
    process = job.start("--json", **_stopping(job.out / "part-000003.parquet"))
    try:
        worker = _stopped_worker(job)
        out, err = process.communicate(timeout=120)
    finally:
        end_group(process)
    assert process.returncode == 0, err
    assert any("no progress for 2 s" in message for message in json.loads(out)["failures"])
    with pytest.raises(ProcessLookupError):  # it cannot come back and commit
        os.kill(worker, signal.SIGCONT)
    job.check_squares(300)


def test_a_worker_that_commits_late_changes_nothing(job: JobFolder) -> None:
    """It stops while another does its shard, and goes on while the job still runs."""
    job.model("while (x == 270).any() and not Path('go').exists(): time.sleep(0.05)")
    part, end = job.out / "part-000003.parquet", job.path / "late.end"
    # One stops, at most two wait with the last shard and its copy, and one does the shard that is late
    process = job.start("--workers", "4", **_stopping(part))
    try:
        worker = _stopped_worker(job)
        wait_for(part.exists, "the shard by another worker")
        before = part.read_bytes()
        os.kill(worker, signal.SIGCONT)
        wait_for(lambda: end.exists() and end.read_text(), "its commit")
        (job.path / "go").touch()
        _, err = process.communicate(timeout=120)
    finally:
        end_group(process)
    assert process.returncode == 0, err
    assert end.read_text() == "lost"
    assert part.read_bytes() == before  # I1
    job.check_squares(300)


def test_a_row_that_kills_every_worker_costs_its_shard_and_no_other(job: JobFolder) -> None:
    job.model(f"if (x == {LATE_ROW}).any(): os._exit(7)")
    done = job.run(expect=5)
    assert "Shard 3 failed: docs/001.parquet" in done.out
    assert "the worker died: exited with code 7" in done.out
    ids = [row["id"] for row in job.rows()]
    assert ids == [k for k in range(300) if not 150 <= k < 200]
    assert not (job.out / "_SUCCESS").exists()
    job.check_clean()


def test_a_slow_shard_gets_a_second_copy_and_the_first_commit_wins(job: JobFolder) -> None:
    slow = "if (x == 270).any() and not Path('slow').exists(): Path('slow').touch(); time.sleep(600)"
    job.model(f"time.sleep(0.002)\n        {slow}")
    job.run("--workers", "2")
    report = json.loads((job.out / "_twoshift" / "report.json").read_text())
    assert report["speculated"] >= 1
    job.check_squares(300)


def test_a_truncated_file_is_named(job: JobFolder) -> None:
    path = job.path / "docs" / "001.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    done = job.run(expect=None)
    assert done.code in (1, 2)
    assert "docs/001.parquet" in done.err
    assert list(job.out.glob("part-*")) == []


@pytest.fixture(params=["jsonl", "parquet"])
def long_file(job: JobFolder, request: pytest.FixtureRequest) -> Path:
    """One of several megabytes, more than is read at once, as the job's only input."""
    ids = range(1500)
    texts = [os.urandom(1000).hex() for _ in ids]
    table = pa.table({"id": ids, "x": [float(k) for k in ids], "t": texts})
    path = job.path / f"long.{request.param}"
    if request.param == "parquet":
        pq.write_table(table, path, row_group_size=250, compression="none", use_dictionary=False)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    given = ["--model", "m.py:Square", "--columns", "x", "--keep", "id,t", "--shard-rows", "250"]
    job.options = [path.name, *given]
    return path


def _bad_block(job: JobFolder, path: Path, role: str, share: float, times: int = 1000) -> None:
    """A block there cannot be read by workers or the coordinator, so many times; each leaves a file."""
    start = int(path.stat().st_size * share)
    places = {"BAD_START": str(start), "BAD_STOP": str(start + 4096), "BAD_TIMES": str(times)}
    files = {"PYTHONPATH": python_path(KILLER), "BAD_FILE": str(path), "BAD_MARK": str(path.parent / "bad")}
    job.environment = {"BAD_ROLE": role, **files, **places}


def _texts(job: JobFolder, out: str) -> list[object]:
    return [(row["id"], row["t"]) for row in job.rows(out)]


def test_a_block_that_cannot_be_read_once_is_read_again(job: JobFolder, long_file: Path) -> None:
    _bad_block(job, long_file, "worker", 0.5, times=1)
    told = json.loads(job.run("--json").out)
    assert (job.path / "bad-0").exists()
    assert any("Input/output error" in message for message in told["failures"])
    job.run("-o", "undisturbed")
    job.check_squares(1500)
    assert _texts(job, "out") == _texts(job, "undisturbed")


def test_a_block_that_cannot_be_read_costs_its_shard_until_it_can(job: JobFolder, long_file: Path) -> None:
    _bad_block(job, long_file, "worker", 0.5)
    done = job.run(expect=5)
    assert long_file.name in done.out
    assert "Input/output error" in done.out
    assert not (job.out / "_SUCCESS").exists()
    before = {path.name: path.read_bytes() for path in job.out.glob("part-*")}
    assert 4 <= len(before) <= 5  # of lines, the shard before it reads on into it for the end of its last
    job.environment = {}
    job.run()
    job.run("-o", "undisturbed")
    job.check_squares(1500)
    assert _texts(job, "out") == _texts(job, "undisturbed")
    assert before.items() <= {path.name: path.read_bytes() for path in job.out.glob("part-*")}.items()  # I1


@pytest.mark.parametrize("share", [0.0, 0.9999])
def test_a_file_that_cannot_be_read_for_the_plan_is_named(job: JobFolder, long_file: Path, share: float) -> None:
    if long_file.suffix != ".parquet" and share:
        pytest.skip("only a Parquet file is begun at its end")
    _bad_block(job, long_file, "coordinator", share)
    done = job.run(expect=None)
    assert done.code != 0
    assert long_file.name in done.err
    assert list(job.out.glob("part-*")) == []
    job.environment = {}
    job.run()
    job.check_squares(1500)


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
    assert "is full" in done.err
    committed = len(list(small_out.glob("part-*")))
    assert committed < 6
    ballast.unlink()
    assert f"{committed} of 6 shards are done" in job.run().err
    job.check_squares(300)
    assert [row["t"] for row in job.rows()] == texts.to_pylist()


def test_a_disk_without_room_for_a_plan_is_told(job: JobFolder, small_out: Path) -> None:
    with (small_out / "_ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)) == 4096 and os.statvfs(small_out).f_bavail:
            pass
    assert "is full" in job.run(expect=75).err
    (small_out / "_ballast").unlink()
    job.run()
    job.check_squares(300)


class RandomFaults(FaultProxy):
    """Every so many requests one fails, in one way or another; the slow ones are dropped before a client gives up."""

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


ANSWER_S = 5.0  # in place of 30, for which a client waits
IMPATIENT = f"""
from dataclasses import replace
from twoshift.blobs.s3 import S3Settings

patient = S3Settings.from_environment
S3Settings.from_environment = lambda *given: replace(patient(*given), request_timeout_s={ANSWER_S})
"""


class OneStall(FaultProxy):
    """The second put, a part after the plan, arrives, and no answer comes for longer than a client waits."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.slow_s = 1.5 * ANSWER_S
        self.puts_s: list[float] = []  # when they came

    def fault_for(self, method: str) -> str | None:
        self.seen.append(method)
        if method != "PUT":
            return None
        self.puts_s.append(time.monotonic())
        return "late" if len(self.puts_s) == 2 else None


@pytest.fixture
def proxy_class() -> type[FaultProxy]:
    return RandomFaults


@pytest.fixture
def s3_job(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch, proxy_class: type[FaultProxy]
) -> Iterator[tuple[JobFolder, FaultProxy]]:
    pytest.importorskip("obstore")
    with moto_server() as endpoint:
        proxy = proxy_class(endpoint)
        make_bucket(endpoint, "bucket")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        for path in sorted((job.path / "docs").iterdir()):
            _s3(endpoint).write(f"s3://bucket/docs/{path.name}", path.read_bytes())
        for blob in _s3(endpoint).list("s3://bucket/"):  # moto keeps what a test before this one has put there
            if "/docs/" not in blob.location:
                _s3(endpoint).delete(blob.location)
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

    return S3Blobs(S3Settings.from_environment({**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}))


def _s3_rows(job: JobFolder) -> list[dict[str, object]]:
    blobs = _s3(job.environment["DIRECT"])
    names = sorted(name for name in blobs.names("s3://bucket/out") if name.startswith("part-"))
    parts = [blobs.read(f"s3://bucket/out/{name}") for name in names]
    assert blobs.stat("s3://bucket/out/_SUCCESS") is not None
    return [row for part in parts for row in pq.read_table(io.BytesIO(part or b"")).to_pylist()]


def test_a_failing_s3_endpoint_loses_nothing(s3_job: tuple[JobFolder, FaultProxy]) -> None:
    job, proxy = s3_job
    job.model("time.sleep(0.01 * len(x))")
    process = job.start("-o", "s3://bucket/out")
    try:
        wait_for(lambda: proxy.seen.count("PUT") >= 3, "a first part")  # the plan, and a part or two
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=120)
    finally:
        end_group(process)
    assert "of 6 shards are done" in job.run("-o", "s3://bucket/out").err
    rows = _s3_rows(job)
    assert [(row["id"], row["squared"], row["error"]) for row in rows] == [(k, float(k) ** 2, None) for k in range(300)]
    assert len(proxy.seen) > 30


@pytest.mark.parametrize("proxy_class", [OneStall])
def test_a_put_that_is_answered_too_late_is_there_once(s3_job: tuple[JobFolder, OneStall]) -> None:
    """The client gives up waiting, asks again, and finds what it put itself."""
    job, proxy = s3_job
    (job.path / "impatient").mkdir()
    (job.path / "impatient" / "sitecustomize.py").write_text(IMPATIENT)
    path = python_path(str(job.path / "impatient"))
    job.run("-o", "s3://bucket/out", "--shard-rows", "1000", PYTHONPATH=path)
    # Records of the run are put meanwhile; the part again, and what follows it, once the client has waited long enough
    assert proxy.puts_s[-1] - proxy.puts_s[1] > 0.9 * ANSWER_S
    assert [row["id"] for row in _s3_rows(job)] == list(range(300))
