"""A call that begins on the part of a device that is free, before the last call has ended."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lanes import Idle, LaneLimits, LanePolicy, Run
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.encoder.stream_lanes import StreamLanes
from twoshift.types import Item

COST = CallCost.line(1e-6, 1e-7)
LIMITS = LaneLimits(max_rows=1, slo_s=1000.0)


class Halves:
    """A call of which one part is over at once, and the other when the device says so."""

    def __init__(self, device: TwoParts, values: list[float]) -> None:
        self.device, self.values = device, values

    def wait(self) -> Columns:
        assert self.device.may_end.wait(10)
        if -1.0 in self.values:
            raise ValueError("poison")
        return {"double": np.array(self.values) * 2}

    def wait_room(self) -> None:
        if len(self.device.begun) > 1:
            self.device.two_begun.set()


class TwoParts:
    info = RuntimeInfo("fake", "0", "fake", "cpu", "fp32", 512, ("double",), overlaps=True)

    def __init__(self) -> None:
        self.may_end, self.two_begun = threading.Event(), threading.Event()
        self.begun: list[list[float]] = []

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        return ColumnRows({"x": np.array(rows, np.float64)})

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Halves:
        values = [float(value) for part in parts for value in part.columns["x"]]  # type: ignore[attr-defined]
        self.begun.append(values)
        return Halves(self, values)

    def close(self) -> None:
        pass


def test_the_next_call_begins_before_the_last_one_has_ended_and_both_are_answered() -> None:
    device = TwoParts()
    with Engine(device, COST, LIMITS) as engine:
        futures = engine.submit(device.prepare([1.0, 2.0, 3.0, 4.0]), engine.now_s() + 100)
        assert device.two_begun.wait(10)
        assert not any(future.done() for future in futures)
        assert len(device.begun) == 2  # and no third one, however many rows wait
        device.may_end.set()
        assert [future.result(10)["double"] for future in futures] == [2.0, 4.0, 6.0, 8.0]
        stats = engine.stats()
    assert stats.calls == 4
    assert sum(use.device_s for use in stats.lanes.values()) == pytest.approx(stats.busy_s)


def test_a_row_that_fails_in_one_of_two_calls_harms_nobody_in_the_other() -> None:
    device = TwoParts()
    device.may_end.set()
    with Engine(device, COST, LIMITS) as engine:
        bad, good = engine.submit(device.prepare([-1.0, 2.0]), engine.now_s() + 100)
        assert good.result(10)["double"] == 4.0
        with pytest.raises(ValueError, match="poison"):
            bad.result(10)


def test_a_call_that_begins_early_is_predicted_to_end_after_the_one_before_it() -> None:
    policy = LanePolicy(CallCost.line(0.01, 0.0), LaneLimits(max_rows=1, slo_s=1.0, shared_depth=2))
    for key in range(3):
        policy.submit(Item(key, 1.0), 0.0)
    decisions = [policy.decide(0.0) for _ in range(3)]
    assert [type(decision) for decision in decisions] == [Run, Run, Idle]
    assert policy.busy_until_s(0.0) == pytest.approx(0.02)


class Request:
    """An OpenVINO request that answers with its input, or fails."""

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end
        self.data = np.zeros(0, np.float32)

    def start_async(self, batch: dict[str, NDArray[Any]], share_inputs: bool) -> None:
        assert share_inputs
        self.data = batch["x"]

    def wait(self) -> None:
        if self.data[0] != 0:  # 0 ends at once
            assert self._may_end.wait(10)
        if self.data[0] < 0:
            raise RuntimeError("the library failed")

    def get_output_tensor(self, _place: int) -> Request:
        return self


def batch(value: float) -> dict[str, NDArray[Any]]:
    return {"x": np.full(2, value, np.float32)}


def test_lanes_take_batches_of_any_call_as_they_become_free() -> None:
    may_end = threading.Event()
    lanes = StreamLanes([Request(may_end), Request(may_end)])
    first = lanes.start([batch(1.0), batch(0.0)])
    first.wait_room()  # the second batch is over
    assert lanes.busy
    second = lanes.start([batch(0.0), batch(0.0)])
    assert [answer[0] for answer in second.wait()] == [0.0, 0.0]  # on the lane that is free
    may_end.set()
    assert [answer[0] for answer in first.wait()] == [1.0, 0.0]
    lanes.close()


def test_what_the_library_raises_is_raised_once_nothing_of_the_call_runs() -> None:
    may_end = threading.Event()
    may_end.set()
    lanes = StreamLanes([Request(may_end), Request(may_end)])
    with pytest.raises(RuntimeError, match="the library failed"):
        lanes.start([batch(-1.0), batch(3.0)]).wait()
    assert [answer[0] for answer in lanes.start([batch(2.0)]).wait()] == [2.0]
    lanes.close()
