from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="the jobs extra is not installed")

from test_coordinator import plan_of

from twoshift import __version__
from twoshift.batch.messages import Begin, Loading, Ready, Unusable
from twoshift.batch.ray_actor import Given
from twoshift.batch.ray_pool import fitting_threads
from twoshift.batch.ray_worker import RayWorker
from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput
from twoshift.policy.preparing import PreparersPolicy
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import open_job_device

MODEL = """
class Model:
    def load(self):
        pass

    def prepare(self, rows):
        return {"x": [1.0] * len(rows)}

    def predict(self, batch):
        return batch
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("RAYON_NUM_THREADS", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "the node's")  # and put back afterwards
    monkeypatch.setattr("twoshift.runtime.devices._share", [])
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "out" / "_twoshift").mkdir(parents=True)
    return tmp_path


def given(folder: Path, version: str = __version__, **changes: Any) -> Given:
    settings: dict[str, Any] = {"inputs": ("in.jsonl",), "output": "out", "model": "model.py:Model"}
    environment = changes.pop("environment", {})
    return Given(version, JobSettings(**settings | changes), 1, str(folder), environment, open_job_device, blobs_for)


def said(worker: RayWorker) -> object:
    return worker.say(0)[0]


def test_messages_are_said_again_until_the_pool_has_them(folder: Path) -> None:
    worker = RayWorker(given(folder), 0, PreparersPolicy())
    assert isinstance(worker.say(0)[0], Loading)
    assert isinstance(worker.say(0)[0], Loading)
    assert isinstance(worker.say(1)[0], Ready)
    assert not any(isinstance(message, Ready) for message in worker.say(2))
    worker.close()
    worker.say(2)  # returns at once


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"inputs": ("gone/*.jsonl",)}, "the input gone/*.jsonl does not exist"),
        ({"inputs": ("gone.jsonl",)}, "the input gone.jsonl does not exist"),
        ({"output": "elsewhere"}, "the output folder elsewhere does not exist"),
        ({"version": "0.0.1"}, "install the same version on every node"),
    ],
)
def test_a_node_on_which_nothing_can_be_done_says_why(folder: Path, changes: dict[str, Any], why: str) -> None:
    message = said(RayWorker(given(folder, **changes), 0, PreparersPolicy()))
    assert isinstance(message, Unusable)
    assert why in str(message.error)


def test_a_plan_that_a_node_cannot_see_is_named_with_what_to_do(folder: Path) -> None:
    worker = RayWorker(given(folder), 0, PreparersPolicy())
    assert isinstance(worker.say(1)[0], Ready)  # or its folder would become that of the next test
    worker.hear(Begin("out", 0.1, "sha256:any"))
    (message,) = (each for each in worker.say(0) if isinstance(each, Unusable))
    assert "out contains no plan.json" in str(message.error)
    assert "shared filesystem" in str(message.error)
    worker.close()


def test_a_node_with_another_model_than_the_jobs_is_refused_by_name_with_what_to_do(folder: Path) -> None:
    plan = plan_of(3)
    (folder / "out" / "_twoshift" / "plan.json").write_bytes(msgspec.json.encode(plan))
    worker = RayWorker(given(folder), 7, PreparersPolicy())
    assert isinstance(worker.say(1)[0], Ready)
    worker.hear(Begin("out", 0.1, "sha256:first"))
    (message,) = (each for each in worker.say(0) if isinstance(each, Unusable))
    assert f"worker {os.uname().nodename}:7 has loaded different weights of model.py:Model: checksum sha256:" in str(
        message.error
    )
    assert "put the same files on every machine" in str(message.error)
    worker.close()


def test_storage_is_reached_as_by_the_command_and_never_half_so(folder: Path) -> None:
    worker = RayWorker(given(folder, environment={"AWS_REGION": "here"}), 0, PreparersPolicy())
    assert isinstance(worker.say(1)[0], Ready)
    worker.close()
    assert os.environ["AWS_REGION"] == "here"
    assert "AWS_SESSION_TOKEN" not in os.environ


@pytest.mark.parametrize(
    ("cpus", "workers", "threads"),
    [([4, 4], 2, 4), ([4, 4], 3, 2), ([3, 3], 3, 1), ([2], 8, 1), ([], 1, 1), ([8, 1], 1, 8)],
)
def test_every_worker_has_room_with_the_threads_it_is_given(cpus: list[int], workers: int, threads: int) -> None:
    assert fitting_threads(cpus, workers) == threads


@pytest.mark.parametrize(
    ("cpus", "elsewhere", "beside", "threads"),
    [([4, 4], 0, 2, 3), ([8], 0, 2, 6), ([8], 2, 2, 8), ([2], 0, 2, 1), ([8], 64, 16, 8)],
)
def test_workers_leave_the_cpus_that_were_asked_for_beside_them(
    cpus: list[int], elsewhere: int, beside: int, threads: int
) -> None:
    assert fitting_threads(cpus, len(cpus), beside, elsewhere) == threads


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine": "spark"}, "engine"),
        ({"address": "auto"}, "address"),
        ({"resources": {"here": 1}}, "resources"),
        ({"engine": "ray", "resources": {"GPU": 1}}, "resources"),
        ({"engine": "ray", "resources": {"here": 0}}, "resources"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobSettings(inputs=("in",), output="out", model="minilm", **changes)
    assert caught.value.field == field
