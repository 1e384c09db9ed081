"""Jobs on a real Ray cluster whose rows are prepared by actors: killed, lost with their node, or without room."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import PROGRAM, python_path
from ray_nodes import Nodes, own_cluster
from tiny_encoder import WORDS, make_tiny_encoder

from waiting import until

pytest.importorskip("ray", reason="the ray extra is not installed")

# Ray itself leaves a socket open now and then
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS, SHARD_ROWS = 60_000, 1000
OPTIONS = ["in.parquet", "--model", "encoder", "--text", "body", "--keep", "id", "--shard-rows", str(SHARD_ROWS)]
NOTE = "too few free CPUs for all preparing processes"

cluster = pytest.fixture(scope="module")(own_cluster)


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    """The cluster; a test's nodes end with it."""
    yield cluster
    cluster.clear()


class Folder:
    """An encoder, its input, and jobs over it."""

    def __init__(self, path: Path) -> None:
        self.path, self.started = path, list[subprocess.Popen[str]]()
        make_tiny_encoder(path / "encoder")
        chance = np.random.default_rng(0)
        texts = [" ".join(each) for each in chance.choice(WORDS, (ROWS, 30))]
        table = pa.table({"id": np.arange(ROWS), "body": [*texts[:-1], None]})
        pq.write_table(table, path / "in.parquet", row_group_size=SHARD_ROWS)

    def start(self, *words: str, out: str = "out") -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": python_path(lean=False), "TWOSHIFT_HOME": str(self.path / "home")}
        given: dict[str, Any] = {"cwd": self.path, "env": environment, "text": True, "start_new_session": True}
        command = [PROGRAM, "run", *OPTIONS, "-o", out, *words]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
        self.started.append(job)
        return job

    def table(self, out: str = "out") -> pa.Table:
        return pq.read_table(sorted((self.path / out).glob("part-*.parquet")))

    def parts(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.path / "out").glob("part-*.parquet")}

    def in_work(self, process: int) -> bool:
        """Whether that process writes a shard."""
        return any((self.path / "out" / "_twoshift" / "staging").glob(f"part-*.{process}.*"))

    def run_record(self) -> dict[str, Any]:
        report = json.loads((self.path / "out" / "_twoshift" / "report.json").read_text())
        return report["runs"][-1]

    def check(self) -> None:
        """Every row once, with a vector or its error."""
        table = self.table()
        assert table["id"].to_pylist() == list(range(ROWS))
        assert table["error"].null_count == ROWS - 1
        assert table["error"].to_pylist()[-1].endswith("the text is null")
        assert table["embedding"].null_count == 1
        assert (self.path / "out" / "_SUCCESS").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for job in made.started:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


def on(nodes: Nodes, preparers: int, *more: str) -> list[str]:
    return ["--engine", "ray", "--address", nodes.address, "--preparers", str(preparers), *more]


def ended(job: subprocess.Popen[str], code: int = 0) -> str:
    _, err = job.communicate(timeout=240)
    assert job.returncode == code, err
    assert "Traceback" not in err
    return err


def preparing(folder: Folder, nodes: Nodes, job: subprocess.Popen[str], count: int = 2) -> dict[int, Any]:
    """The preparing actors of a job, once so many have a shard in work; its worker stands still from then on."""
    found = dict[int, Any]()

    def all_work() -> bool:
        assert job.poll() is None, job.communicate()
        found.clear()
        found.update(nodes.processes("PreparingActor"))
        return len(found) == count and all(map(folder.in_work, found))

    until(all_work)
    for worker in nodes.processes("RayWorker"):
        os.kill(worker, signal.SIGSTOP)
    return found


def go_on(nodes: Nodes) -> None:
    for worker in nodes.processes("RayWorker"):
        os.kill(worker, signal.SIGCONT)


def test_actors_on_nodes_without_gpus_write_what_a_worker_alone_would(folder: Folder, nodes: Nodes) -> None:
    with_gpu = nodes.add(cpus=4, gpus=1, model_here=1)
    without = nodes.add(cpus=2)
    job = folder.start(*on(nodes, 2, "--resources", "model_here=1", "--threads", "1"))
    found = preparing(folder, nodes, job)
    assert set(nodes.processes("RayWorker").values()) == {with_gpu}
    assert set(found.values()) == {without}
    go_on(nodes)
    assert NOTE not in ended(job)
    folder.check()
    assert folder.run_record()["preparers"] == 2
    assert nodes.processes("PreparingActor") == {}
    ended(folder.start(out="alone"))
    with_them, alone = folder.table(), folder.table("alone")
    assert with_them.schema == alone.schema
    assert with_them.drop_columns("embedding") == alone.drop_columns("embedding")
    first, second = (np.stack(each["embedding"].drop_null().to_numpy()) for each in (with_them, alone))
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("who", ["preparer", "worker", "node of the preparers"])
def test_whoever_dies_costs_only_what_it_had_in_work(folder: Folder, nodes: Nodes, who: str) -> None:
    nodes.add(cpus=3, gpus=1, model_here=1)
    beside = nodes.add(cpus=2)
    job = folder.start(*on(nodes, 2, "--resources", "model_here=1", "--threads", "1"))
    found = preparing(folder, nodes, job)
    before = folder.parts()
    if who == "preparer":
        os.kill(next(iter(found)), signal.SIGKILL)
    elif who == "worker":
        [worker] = nodes.processes("RayWorker")
        os.kill(worker, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in found))  # they end with it
    else:
        nodes.kill(beside)
    go_on(nodes)
    ended(job)
    folder.check()
    assert before.items() <= folder.parts().items()  # a published part is never rewritten
    record = folder.run_record()
    assert len(record["deaths"]) == (who == "worker")
    lost = [told for told in record["failures"] if told.startswith("the preparing process on ")]
    assert len(lost) == {"preparer": 1, "worker": 0, "node of the preparers": 2}[who], record["failures"]
    assert record["preparers"] == 2


def test_a_cluster_without_room_for_them_is_told_of_and_holds_nobody_up(folder: Folder, nodes: Nodes) -> None:
    nodes.add(cpus=1)
    assert NOTE in ended(folder.start(*on(nodes, 2)))
    folder.check()
    assert folder.run_record()["preparers"] == 0


def test_a_job_that_is_interrupted_leaves_no_actor_and_goes_on_without_them(folder: Folder, nodes: Nodes) -> None:
    nodes.add(cpus=3)
    job = folder.start(*on(nodes, 2, "--grace", "0s"))
    preparing(folder, nodes, job)
    go_on(nodes)
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does
    ended(job, 3)
    until(lambda: not nodes.processes("PreparingActor"))
    before = folder.parts()
    ended(folder.start("--preparers", "0"))
    folder.check()
    assert before.items() <= folder.parts().items()
