"""The jobs at a replica: what concerns a job that has left is no error."""

from __future__ import annotations

from typing import Any

import pytest

from twoshift.batch.job_seats import ShardTask
from twoshift.engine import Engine
from twoshift.fleet.control import Follow, FromChild, Hold, Leave, Resume, TakePlace, ToChild, Work, WorkEnded, WorkTold
from twoshift.fleet.replica_jobs import ReplicaJobs
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.types import Lane
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.model_loading import load_model


@pytest.fixture
def engine(tmp_path: Any) -> Any:
    (tmp_path / "m.py").write_text(
        "class Same:\n    def load(self): pass\n    def predict(self, batch): return {'y': batch['x']}\n"
    )
    with Engine(load_model(f"{tmp_path / 'm.py'}:Same"), CallCost.line(1e-3, 1e-6), LaneLimits(slo_s=600.0)) as made:
        yield made


@pytest.mark.parametrize("late", [Hold(7), Resume(7), Follow(7, 1.0, True), Leave(7), WorkTold(3, None)])
def test_words_for_a_job_that_has_left_are_let_pass(engine: Engine, late: ToChild) -> None:
    jobs = ReplicaJobs(engine, lambda _: None)
    jobs.handle(TakePlace(7, 1.0, Lane.BATCH))
    jobs.handle(Leave(7))
    jobs.handle(late)
    jobs.handle(TakePlace(8, 1.0, Lane.BATCH))  # and others are served
    jobs.handle(Hold(8))


def test_work_for_a_job_that_has_left_ends_at_once(engine: Engine) -> None:
    said = list[FromChild]()
    jobs = ReplicaJobs(engine, said.append)
    jobs.handle(Work(place=7, work=3, task=ShardTask(None, blobs_for), name="w"))  # type: ignore[arg-type]
    assert said == [WorkEnded(3)]
