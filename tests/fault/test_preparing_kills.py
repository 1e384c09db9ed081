"""Jobs whose preparing processes, or their worker, are killed: nothing is lost or there twice, and nobody is left."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import JobFolder, children, end_group, preparers, wait_for
from tiny_encoder import WORDS, make_tiny_encoder

pytestmark = pytest.mark.slow
MOMENTS = int(os.environ.get("TWOSHIFT_FAULTS", "12")) // 4
ROWS = 40_000


@pytest.fixture
def texts(job: JobFolder) -> JobFolder:
    """A job over texts, with processes that prepare them."""
    make_tiny_encoder(job.path / "encoder")
    chance = np.random.default_rng(0)
    bodies = [" ".join(chance.choice(WORDS, count)) for count in chance.integers(1, 30, ROWS)]
    table = pa.table({"id": np.arange(ROWS), "body": bodies})
    pq.write_table(table, job.path / "in.parquet", row_group_size=1000)
    job.options = ["in.parquet", "--model", "encoder", "--text", "body", "--keep", "id", "--shard-rows", "1000"]
    job.options += ["--preparers", "2"]
    return job


def check(job: JobFolder) -> None:
    """Every row once, with a vector."""
    table = pq.read_table(sorted(job.out.glob("part-*.parquet")))
    assert table["id"].to_pylist() == list(range(ROWS))
    assert table["error"].null_count == table["id"].length() - table["id"].null_count == ROWS
    assert table["embedding"].null_count == 0
    assert (job.out / "_SUCCESS").exists()
    job.check_clean()


def started(job: JobFolder, process_id: int) -> tuple[int, list[int]]:
    """The worker of a run, and its preparing processes once it has them."""
    wait_for(lambda: children(process_id), "a worker")
    worker = children(process_id)[0]
    wait_for(lambda: preparers(worker), "preparing processes")
    return worker, preparers(worker)


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_a_preparing_process_that_is_killed_costs_only_its_shards(texts: JobFolder, seed: int) -> None:
    """At random moments, of its start, too."""
    chance = random.Random(seed)  # noqa: S311
    process, before = texts.start(), dict[str, bytes]()
    try:
        for _ in range(2):
            _, found = started(texts, process.pid)
            time.sleep(chance.uniform(0.0, 1.0))
            before |= {path.name: path.read_bytes() for path in texts.out.glob("part-*")}
            os.kill(chance.choice(found), signal.SIGKILL)
        _, err = process.communicate(timeout=150)
    finally:
        end_group(process)
    assert process.returncode == 0, err
    check(texts)
    assert before.items() <= {path.name: path.read_bytes() for path in texts.out.glob("part-*")}.items()  # I1


@pytest.mark.parametrize("who", ["worker", "coordinator"])
def test_preparing_processes_end_with_who_has_started_them(texts: JobFolder, who: str) -> None:
    process = texts.start()
    try:
        worker, found = started(texts, process.pid)
        wait_for(lambda: list(texts.out.glob("part-*")), "a first part")
        os.kill(worker if who == "worker" else process.pid, signal.SIGKILL)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found), "their end")
        _, err = process.communicate(timeout=150)
    finally:
        end_group(process)
    assert process.returncode == (0 if who == "worker" else -signal.SIGKILL), err
    if who == "coordinator":
        texts.run()
    check(texts)


def test_a_job_that_is_interrupted_leaves_no_process_and_is_resumed_without_them(texts: JobFolder) -> None:
    process = texts.start("--grace", "0s")
    try:
        _, found = started(texts, process.pid)
        wait_for(lambda: list(texts.out.glob("part-*")), "a first part")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.communicate(timeout=150)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found), "their end")
    finally:
        end_group(process)
    texts.run("--preparers", "0")
    check(texts)
