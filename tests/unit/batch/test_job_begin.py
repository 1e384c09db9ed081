"""A job up to its first shard, over workers that say what a test wants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from twoshift.batch.job import Job
from twoshift.batch.messages import Begin, Calibrate, Calibrated, Loading, Ready, Score, Scored
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import read_plan
from twoshift.batch.pool import Died
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput
from twoshift.ports import RuntimeInfo

INFO = RuntimeInfo("m", "sum", "fake", "cpu", "fp32", 1, ("y",))
SCHEMA = pa.schema([pa.field("y", pa.float64())]).serialize().to_pybytes()
MEASURED = Calibrated(0.01, SCHEMA, None)


class ScriptedPool:
    """Answers calibrations and shards at once; `script` is what each poll says besides, first to last."""

    def __init__(self, *script: list[tuple[int, Any]]) -> None:
        self.script, self.sent, self.killed, self.started = list(script), list[tuple[int, Any]](), list[int](), 0
        self.measured = MEASURED
        self.calibrates, self.begins = True, list[Any]()  # what a worker says as it is started
        self._replies: list[tuple[int, Any]] = []

    def start(self) -> int:
        self.started += 1
        self._replies += [(self.started - 1, message) for message in self.begins]
        return self.started - 1

    def send(self, worker: int, message: Any) -> None:
        self.sent.append((worker, message))
        if isinstance(message, Calibrate) and self.calibrates:
            self._replies.append((worker, self.measured))
        if isinstance(message, Score):
            stats = PartStats(message.shard, 1, 0, 1, 0, 0.1, 0.1, "w", {})
            self._replies.append((worker, Scored(message.lease, stats, True)))

    def poll(self, timeout_s: float) -> list[tuple[int, Any]]:
        said = self.script.pop(0) if self.script else []
        said, self._replies = [*said, *self._replies], []
        return said

    def kill(self, worker: int) -> None:
        self.killed.append(worker)
        self._replies.append((worker, Died("killed")))

    def close(self, grace_s: float) -> None:
        pass


def run(tmp_path: Path, pool: ScriptedPool, **settings: Any) -> None:
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n' * 20)
    made = JobSettings(
        inputs=(str(tmp_path / "in.jsonl"),), output=str(tmp_path / "out"), model="m", shard_rows=2, **settings
    )
    Job(made, lambda _: LocalBlobs(), pool).run(lambda _: None, lambda _: None)


def test_nothing_that_workers_say_together_is_lost(tmp_path: Path) -> None:
    pool = ScriptedPool([(0, Loading()), (1, Loading()), (0, Ready(INFO)), (1, Ready(INFO))])
    with pytest.raises(Broken, match="was deleted"):  # no worker has published anything
        run(tmp_path, pool, workers=2)
    assert {worker for worker, message in pool.sent if isinstance(message, Begin)} == {0, 1}
    assert {worker for worker, message in pool.sent if isinstance(message, Score)} == {0, 1}


def test_workers_that_have_loaded_different_models_are_refused_by_name_before_a_plan_is_written(tmp_path: Path) -> None:
    other = replace(INFO, checksum="another")
    pool = ScriptedPool([(0, Loading()), (1, Loading()), (1, Ready(INFO, "a:1")), (0, Ready(other, "b:0"))])
    with pytest.raises(
        Broken, match="worker b:0 has loaded different weights of m: checksum another, expected sum; put the same"
    ):
        run(tmp_path, pool, workers=2)
    assert read_plan(LocalBlobs(), str(tmp_path / "out")) is None


def test_a_worker_that_dies_beside_one_that_is_ready_is_replaced(tmp_path: Path) -> None:
    pool = ScriptedPool([(1, Died("gone")), (0, Ready(INFO))])
    with pytest.raises(Broken, match="was deleted"):
        run(tmp_path, pool, workers=2)
    assert pool.started == 3


def test_a_model_that_is_never_loaded_ends_it(tmp_path: Path) -> None:
    pool = ScriptedPool()
    pool.begins = [Loading()]
    with pytest.raises(Broken, match="the worker did not load the model in time"):
        run(tmp_path, pool, load_seconds=1e-9)
    assert pool.killed == [0, 1, 2]


def test_a_model_that_never_answers_the_first_rows_ends_it(tmp_path: Path) -> None:
    pool = ScriptedPool()
    pool.calibrates, pool.begins = False, [Ready(INFO)]
    with pytest.raises(Broken, match="did not return results for the first rows"):
        run(tmp_path, pool, lease_seconds=1e-9)


@pytest.mark.slow
def test_rows_that_seem_slow_do_not_make_a_shard_of_each(tmp_path: Path) -> None:
    pool = ScriptedPool([(0, Loading()), (0, Ready(INFO))])
    pool.measured = Calibrated(100.0, SCHEMA, None)
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n' * 25_000)
    made = JobSettings(inputs=(str(tmp_path / "in.jsonl"),), output=str(tmp_path / "out"), model="m")
    with pytest.raises(Broken, match="was deleted"):
        Job(made, lambda _: LocalBlobs(), pool).run(lambda _: None, lambda _: None)
    plan = read_plan(LocalBlobs(), made.output)
    assert plan is not None
    assert plan.rows == 25_000
    assert 1000 < len(plan.shards) <= 10_000


def test_a_job_over_a_query_resumes_with_its_result_and_names_what_has_changed(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    query = "SELECT x + 1 AS y FROM input"

    def again(asked: str = query) -> None:
        with pytest.raises(Broken, match="was deleted"):  # no worker has published anything
            run(tmp_path, ScriptedPool([(0, Loading()), (0, Ready(INFO))]), query=asked)

    again()
    plan = read_plan(LocalBlobs(), str(tmp_path / "out"))
    assert plan is not None
    assert [Path(file.location).name for file in plan.sources] == ["in.jsonl"]
    assert [Path(file.location).name for file in plan.files] == ["query.parquet"]
    assert plan.rows == 20
    again()  # in.jsonl was written anew, with the same bytes
    with pytest.raises(InvalidInput, match="query was SELECT"):
        again("SELECT x FROM input")
    pool = ScriptedPool()
    (tmp_path / "in.jsonl").write_text("{}")
    with pytest.raises(InvalidInput, match=r"in\.jsonl \(180 bytes before, 2 bytes now\)"):
        Job(plan.settings, lambda _: LocalBlobs(), pool).run(lambda _: None, lambda _: None)
    assert pool.started == 0
