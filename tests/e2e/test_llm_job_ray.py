"""A job over a language model on a Ray cluster: a worker is killed while it has sequences."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from programs import PROGRAM, environment
from ray_nodes import Nodes, own_cluster
from word_server import word_server

from waiting import until

pytest.importorskip("ray", reason="the ray extra is not installed")

# Ray itself leaves a socket open now and then
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS = 40
PROMPT = "{name} " + "and more " * 20
nodes: Any = pytest.fixture(scope="module")(own_cluster)


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    env = environment(folder, HOME=str(folder), OPENAI_API_KEY="secret")
    command = [PROGRAM, "run", "asked.jsonl", "--engine", "ray", "--keep", "id", "-o", "out", "--json", *words]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_workers_that_are_killed_in_mid_answer_lose_nothing(tmp_path: Path, nodes: Nodes) -> None:
    for _ in range(2):
        nodes.add()
    asked = ({"id": k, "name": f"name{k}"} for k in range(ROWS))
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    with word_server() as words:
        on_ray = ("--address", nodes.address, "--workers", "2", "--shard-rows", "5")
        job = begin(tmp_path, *on_ray, "--model", words.model, "--prompt", PROMPT, "--max-tokens", "100")
        until(lambda: list((tmp_path / "out").glob("part-*")) or job.poll() is not None)
        words.going.clear()
        until(lambda: len(nodes.processes("RayWorker")) == 2 or job.poll() is not None)
        assert job.poll() is None, job.communicate()
        for process in nodes.processes("RayWorker"):  # one of them may have nothing to do yet
            os.kill(process, signal.SIGKILL)
        words.going.set()
        out, err = job.communicate(timeout=240)
        assert job.returncode == 0, err
        assert words.keys == {"Bearer secret"}, "of whoever runs the job: the nodes have none"
    found = ds.dataset(tmp_path / "out").to_table().sort_by("id").to_pylist()
    assert [row["id"] for row in found] == list(range(ROWS))
    assert {row["error"] for row in found} == {None}
    assert all(row["text"].split() == PROMPT.format(name=f"name{row['id']}").split() for row in found)
    assert {(row["finish_reason"], row["output_tokens"]) for row in found} == {("stop", 41)}
    assert json.loads(out)["output_tokens"] == 41 * ROWS
    assert json.loads((tmp_path / "out" / "_twoshift" / "report.json").read_text())["deaths"]
