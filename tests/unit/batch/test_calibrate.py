"""What a job's first rows take, and how its shards follow from that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from texts_runtime import SumRuntime
from twoshift.batch.calibrate import calibrate
from twoshift.batch.device import SharedDevice
from twoshift.engine import BlockResult, Engine
from twoshift.engine.gentle_prepare import GentlePreparing
from twoshift.engine.waiting import BlockOwner
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.types import Lane

ROW_S = 0.003


class Same:
    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"y": columns["x"]}


def runtime() -> HostModel:
    return HostModel(RuntimeInfo("m", "sum", "python", "cpu", "fp32", 1, ("y",)), Same())


class BusyEngine:
    """Says that its calls had so much of the device, whatever the clock on the wall shows."""

    def __init__(self) -> None:
        self.runtime = runtime()

    def submit_block(self, part: Prepared, deadline_s: float) -> Future[BlockResult]:
        done = Future[BlockResult]()
        rows = len(part.lengths)
        done.set_result(BlockResult({"y": np.zeros(rows)}, {}, ROW_S * rows))
        return done


def test_on_a_device_that_is_shared_the_time_of_rows_is_the_devices() -> None:
    engine: Any = BusyEngine()
    owner = BlockOwner()
    measured = SharedDevice(engine, owner).calibrate([{"x": float(k)} for k in range(64)])
    assert measured.seconds_per_row == pytest.approx(ROW_S)
    assert owner.use.device_s == pytest.approx((64 + 64 + 128) * ROW_S)  # larger calls are no faster


def test_a_job_is_measured_before_those_that_are_in_work_go_on() -> None:
    called = list[float]()

    class Noted(Same):
        def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            called.extend(columns["x"].tolist())
            return super().predict(columns)

    model = HostModel(RuntimeInfo("m", "sum", "python", "cpu", "fp32", 1, ("y",)), Noted())
    with Engine(model, CallCost.line(0.0, 0.001), LaneLimits(max_rows=4), start=False) as engine:
        in_work = BlockOwner(1, deadline_s=engine.now_s() + 1.0)
        engine.submit_block(model.prepare([{"x": -1.0}] * 64), owner=in_work)
        with ThreadPoolExecutor(1) as thread:
            measured = thread.submit(SharedDevice(engine, BlockOwner(2)).calibrate, [{"x": 5.0}, {"x": 6.0}])
            while engine.waiting()[Lane.BATCH].rows < 66:
                time.sleep(0.001)
            engine.step()
            assert measured.result(60).schema is not None
    assert called[:2] == [5.0, 6.0]


def test_a_small_model_is_measured_in_calls_as_large_as_the_jobs_with_what_preparing_takes() -> None:
    def run(part: Prepared) -> tuple[dict[str, NDArray[Any]], float]:
        rows = len(part.lengths)
        return {"y": np.zeros(rows)}, 0.01 + 1e-5 * rows  # 64 rows in small calls take ten times as long

    measured = calibrate(runtime(), [{"x": float(k)} for k in range(64)], run)
    assert 1e-5 < measured.seconds_per_row < 4e-5
    assert measured.host_s_per_row > 0


def test_what_calls_say_that_they_took_is_what_counts_up_to_a_budget() -> None:
    sizes = list[int]()

    def run(part: Prepared) -> tuple[dict[str, NDArray[Any]], float]:
        sizes.append(len(part.lengths))
        return {"y": np.zeros(sizes[-1])}, 0.1 * sizes[-1]

    measured = calibrate(runtime(), [{"x": float(k)} for k in range(64)], run)
    assert measured.seconds_per_row == pytest.approx(0.1)
    assert sizes == [2, 4, 8]  # the first warms up, and 0.4 s are not enough


def test_beside_live_rows_the_sample_is_prepared_gently() -> None:
    sums, rests_s = SumRuntime(), list[float]()
    gentle = GentlePreparing(sums.row_preparer, lambda: True, time.thread_time, rests_s.append)

    def run(part: Prepared) -> tuple[Columns, float]:
        return sums.launch([part]).wait(), 0.001

    found = calibrate(sums, ["a text"] * 64, run, gentle)
    assert found.seconds_per_row > 0
    assert rests_s
