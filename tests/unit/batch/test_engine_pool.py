"""A job in the batch lane of engines that serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from twoshift.batch.coordinator import Ending
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.job import Job
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import EngineReplica, LiveFleet, Used
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.engine import Engine
from twoshift.errors import TwoshiftError
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel


class Square:
    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"squared": columns["x"] ** 2}


def engine() -> Engine:
    info = RuntimeInfo("m", "sum", "python", "cpu", "fp32", 1, ("squared",))
    return Engine(HostModel(info, Square()), CallCost.line(1e-3, 1e-6), LaneLimits(slo_s=0.5))


def live(*engines: Engine) -> LiveFleet:
    replicas = [EngineReplica(each) for each in engines]
    return LiveFleet(lambda: replicas, list)


def settings(tmp_path: Path, name: str, **more: Any) -> JobSettings:
    table = pa.table({"id": np.arange(500), "x": np.arange(500.0)})
    pq.write_table(table, tmp_path / "in.parquet")
    return JobSettings(
        inputs=(str(tmp_path / "in.parquet"),), output=str(tmp_path / name), model="m", columns=("x",), keep=("id",),
        shard_rows=100, **more,
    )  # fmt: skip


def test_a_job_runs_in_the_lane_of_engines_that_go_on_serving(tmp_path: Path) -> None:
    with engine() as first, engine() as second:
        chosen = settings(tmp_path, "out", workers=2)
        lane = JobOnFleet(chosen, live(first, second))
        job = Job(chosen, lambda _: LocalBlobs(), EnginePool(chosen, lane, lambda _: LocalBlobs()), lane)
        result = job.run(lambda _: None, lambda _: None)
        assert result.ending is Ending.DONE
        assert result.summary is not None
        assert result.summary.rows == 500
        assert result.summary.harvested_s > 0
        assert result.summary.dedicated_s == 0
        table = pq.read_table(tmp_path / "out")
        assert sorted(table["squared"].to_pylist()) == [float(k) ** 2 for k in range(500)]
        for each in (first, second):  # they are not the job's to close
            rows = each.runtime.prepare([{"x": 3.0}])
            assert each.submit(rows, each.now_s() + 5)[0].result()["squared"] == 9.0


def test_a_worker_that_hangs_is_replaced_and_what_it_says_later_is_not_heard(tmp_path: Path) -> None:
    with engine() as only:
        chosen = settings(tmp_path, "out")
        pool = EnginePool(chosen, JobOnFleet(chosen, live(only)), lambda _: LocalBlobs())
        number = pool.start()
        pool.kill(number)
        said = []
        while not said or type(said[-1][1]).__name__ != "Died":
            said += pool.poll(5.0)
        assert {worker for worker, _ in said} == {number}
        assert pool.start() == number + 1
        pool.close(5.0)


def test_rows_for_which_the_budget_has_no_room_are_no_errors_of_their_own(tmp_path: Path) -> None:
    info = RuntimeInfo("m", "sum", "python", "cpu", "fp32", 1, ("squared",))
    slow = CallCost.line(4.0, 1e-6)  # half of the objective is 0.25 s: so far beyond it needs no trial
    with Engine(HostModel(info, Square()), slow, LaneLimits(slo_s=0.5)) as only:
        chosen = settings(tmp_path, "out")
        lane = JobOnFleet(chosen, live(only))
        job = Job(chosen, lambda _: LocalBlobs(), EnginePool(chosen, lane, lambda _: LocalBlobs()), lane)
        with pytest.raises(TwoshiftError, match="with an SLO of 500 ms, a call with batch rows may take 250 ms"):
            job.run(lambda _: None, lambda _: None)
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_lane_outside_its_hours_is_held_from_its_first_moment_and_does_nothing_once_it_is_closed() -> None:
    class Counted:
        def __init__(self) -> None:
            self.held = self.released = self.left = 0

        def place(self, _weight: float) -> Counted:
            return self

        def follow(self, *_: Any) -> None: ...

        def used(self) -> Used:
            return Used()

        def hold(self) -> None:
            self.held += 1

        def release(self) -> None:
            self.released += 1

        def leave(self) -> None:
            self.left += 1

    replica: Any = Counted()
    chosen = JobSettings(inputs=("x",), output="y", model="m", hours="22:00-06:00")
    lane = JobOnFleet(chosen, LiveFleet(lambda: [replica], list), minute=lambda: 12 * 60)
    assert lane.why_held
    lane.places()
    assert replica.held == 1
    lane.close()
    assert (replica.released, replica.left) == (0, 1)  # what was held back is not to run now
    lane.tick()  # one that was on its way
    assert (replica.held, replica.released, replica.left) == (1, 0, 1)
    assert lane.places() == {}
