"""Jobs on a real Ray cluster of several nodes, all on this machine: nodes die and come in mid-job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from programs import command
from ray_nodes import Nodes, own_cluster

from waiting import until

pytest.importorskip("ray", reason="the ray extra is not installed")

# Ray itself leaves a socket open now and then
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROGRAM = Path(sys.executable).with_name("twoshift")
ROWS = 120
# It stands still while the file `hold` is there, so that what a test does in mid-job is done in mid-job
MODEL = """
import os, time
from pathlib import Path
import numpy as np

class Slow:
    def load(self):
        Path(f"loaded-{os.getpid()}").touch()

    def prepare(self, rows):
        return {"size": np.array([float(len(row["body"])) for row in rows])}

    def predict(self, batch):
        while Path("hold").exists():
            time.sleep(0.05)
        time.sleep(0.02 * len(batch["size"]))
        if (batch["size"] == 13).any():
            raise ValueError("unlucky")
        return {"double": 2 * batch["size"], "pair": np.stack([batch["size"], -batch["size"]], 1).astype("float32")}
"""
WORDS = ("in*.jsonl", "--model", "model.py:Slow", "--columns", "body", "--keep", "id", "--shard-rows", "5")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    for name, start in (("in0.jsonl", 0), ("in1.jsonl", ROWS // 2)):
        rows = ({"id": number, "body": "x" * (number % 17)} for number in range(start, start + ROWS // 2))
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


cluster = pytest.fixture(scope="module")(own_cluster)


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    """The cluster; a test's nodes end with it."""
    yield cluster
    cluster.clear()


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    line = [str(PROGRAM), "run", *WORDS, "-o", "out", "--json", *words]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(job: subprocess.Popen[str], code: int = 0) -> str:
    out, err = job.communicate(timeout=240)
    assert job.returncode == code, err
    assert "Traceback" not in err
    return out + err


def wait_for(what: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    while not what():
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "out").glob("part-*.parquet"))


def rows(folder: Path, out: str = "out") -> list[dict[str, Any]]:
    return ds.dataset(folder / out).to_table().sort_by("id").to_pylist()


def check(folder: Path) -> None:
    """Every row once, with the values of an undisturbed local run."""
    done = command("run", *WORDS, "-o", "undisturbed", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = rows(folder)
    assert [row["id"] for row in found] == list(range(ROWS))
    assert found == rows(folder, "undisturbed")
    assert all((row["error"] is not None) == (row["id"] % 17 == 13) for row in found)


def writers(folder: Path) -> set[str]:
    return {json.loads(pq.read_metadata(part).metadata[b"twoshift"])["worker"] for part in parts(folder)}


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "_twoshift" / "report.json").read_text())


def test_a_node_that_dies_in_mid_job_loses_nothing(folder: Path, nodes: Nodes) -> None:
    first, _ = nodes.add(), nodes.add()
    job = begin(folder, "--engine", "ray", "--address", nodes.address, "--workers", "2")
    wait_for(lambda: len(parts(folder)) >= 2 and len(list(folder.glob("loaded-*"))) == 2, job)
    (folder / "hold").touch()
    nodes.kill(first)
    workers = [Path("/proc", each.name.removeprefix("loaded-")) for each in folder.glob("loaded-*")]
    until(lambda: not all(each.exists() for each in workers))
    (folder / "hold").unlink()
    end(job)
    check(folder)
    assert len(report(folder)["deaths"]) >= 1


def test_a_node_that_ray_drains_hands_its_shard_back_before_it_is_gone(folder: Path, nodes: Nodes) -> None:
    first, _ = nodes.add(), nodes.add()
    job = begin(folder, "--engine", "ray", "--address", nodes.address, "--workers", "2")
    wait_for(lambda: len(parts(folder)) >= 2 and len(list(folder.glob("loaded-*"))) == 2, job)
    (folder / "hold").touch()
    [worker] = [pid for pid, node in nodes.processes("RayWorker").items() if node is first]
    nodes.drain(first, left_s=8.0)
    wait_for(lambda: not Path("/proc", str(worker)).exists(), job)  # in its last call, and all the same
    nodes.kill(first)
    (folder / "hold").unlink()
    end(job)
    check(folder)
    [run] = report(folder)["runs"]
    assert [notice.startswith("Ray is draining the node") for notice in run["notices"]] == [True]
    assert run["lost_s"] > 0
    assert report(folder)["deaths"] == []


def test_as_many_workers_as_the_window_needs_are_started_on_ray(folder: Path, nodes: Nodes) -> None:
    nodes.add()
    nodes.add()
    many = ({"id": number, "body": "x"} for number in range(ROWS, 30_000))  # ten minutes for one worker
    (folder / "in2.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
    words = ("--workers", "auto", "--max-workers", "2", "--window", "5m")
    job = begin(folder, "--engine", "ray", "--address", nodes.address, *words)
    wait_for(lambda: len(list(folder.glob("loaded-*"))) == 2, job)
    job.send_signal(signal.SIGINT)
    end(job, 3)
    [run] = report(folder)["runs"]
    assert [workers for _, workers, _ in run["scaling"]] == [2]
    assert "finish in time" in run["scaling"][0][2]


def test_a_node_that_comes_in_mid_job_takes_part(folder: Path, nodes: Nodes) -> None:
    nodes.add(model_here=1)
    words = ("--engine", "ray", "--address", nodes.address, "--workers", "2", "--resources", "model_here=1")
    job = begin(folder, *words)
    wait_for(lambda: len(parts(folder)) >= 1, job)  # the worker for which there is no room holds nobody up
    (folder / "hold").touch()
    nodes.add(model_here=1)
    wait_for(lambda: len(list(folder.glob("loaded-*"))) == 2, job)
    (folder / "hold").unlink()
    end(job)
    assert len(writers(folder)) == 2
    check(folder)


def test_a_job_goes_from_here_to_ray_and_back(folder: Path, nodes: Nodes) -> None:
    nodes.add()
    on_ray = ("--engine", "ray", "--address", nodes.address)
    for words in ((), on_ray, ()):
        before = len(parts(folder))
        job = begin(folder, *words)
        if words or not before:
            wait_for(lambda before=before: len(parts(folder)) > before, job)
            job.send_signal(signal.SIGTERM)
            end(job, 3)
        else:
            end(job)
        assert len(parts(folder)) > before
    assert len(report(folder)["runs"]) == 3
    check(folder)
