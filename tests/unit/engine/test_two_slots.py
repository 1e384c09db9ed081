from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.errors import Broken, DeviceLost
from twoshift.policy.cost import CallCost
from twoshift.policy.device_time import DeviceTime
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.types import Lane

COST = CallCost.line(1e-6, 1e-7)
LIMITS = LaneLimits(max_rows=8, slo_s=1000.0)


class Numbers:
    """Rows that are numbers."""

    def __init__(self, *values: int) -> None:
        self.values = values

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.ones(len(self.values), np.int64)

    @property
    def truncated(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.values), bool)

    @property
    def signature(self) -> None:
        return None

    def slice(self, start: int, stop: int) -> Numbers:
        return Numbers(*self.values[start:stop])

    def take(self, order: NDArray[np.int64]) -> Numbers:
        return Numbers(*(self.values[k] for k in order))


class Pending:
    """A call that lasts until the device lets its lane go."""

    def __init__(self, device: TwoLanes, values: list[int], live: bool) -> None:
        self.device, self.values, self.live = device, values, live

    def wait(self) -> Columns:
        if not self.live:
            assert self.device.background_may_end.wait(120)
        if self.device.lost:
            raise DeviceLost("gone")
        if -1 in self.values:
            raise ValueError("poison")
        return {"double": np.array(self.values) * 2}


class TwoLanes:
    """A device on which live calls overtake."""

    info = RuntimeInfo("fake", "0", "fake", "cuda", "bf16", 512, ("double",), live_stream=True)

    def __init__(self) -> None:
        self.background_may_end = threading.Event()
        self.two_queued = threading.Event()
        self.launched = threading.Event()
        self.background_calls = 0
        self.lost = False

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        return Numbers(*rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Pending:
        values = [value for part in parts if isinstance(part, Numbers) for value in part.values]
        if not live:
            self.background_calls += 1
            self.launched.set()
            if self.background_calls >= 2:
                self.two_queued.set()
        return Pending(self, values, live)

    def close(self) -> None:
        pass


@pytest.fixture
def device() -> TwoLanes:
    return TwoLanes()


def test_live_rows_are_answered_while_background_calls_wait_on_the_device(device: TwoLanes) -> None:
    engine = Engine(device, COST, LIMITS)
    block = engine.submit_block(Numbers(*range(100)))
    assert device.two_queued.wait(120)
    for value in range(20):
        assert engine.submit(Numbers(value), engine.now_s() + 100)[0].result(120)["double"] == 2 * value
    assert not block.done()
    device.background_may_end.set()
    assert block.result(120).columns["double"].tolist() == [2 * value for value in range(100)]
    stats = engine.stats()
    assert (stats.lanes[Lane.ONLINE].rows, stats.lanes[Lane.BATCH].rows) == (20, 100)
    assert sum(use.device_s for use in stats.lanes.values()) == pytest.approx(stats.busy_s)
    engine.close()


def test_a_bad_row_is_found_in_either_slot(device: TwoLanes) -> None:
    device.background_may_end.set()
    engine = Engine(device, COST, LIMITS)
    block = engine.submit_block(Numbers(1, 2, -1, 4))
    live = engine.submit(Numbers(5, -1), engine.now_s() + 100)
    assert list(block.result(120).errors) == [2]
    assert live[0].result(120)["double"] == 10
    with pytest.raises(ValueError, match="poison"):
        live[1].result(120)
    engine.close()


def test_a_device_lost_in_one_slot_ends_both(device: TwoLanes) -> None:
    engine = Engine(device, COST, LIMITS)
    block = engine.submit_block(Numbers(*range(100)))
    assert device.two_queued.wait(120)
    device.lost = True
    device.background_may_end.set()
    with pytest.raises(Broken, match="gone"):
        block.result(120)
    assert engine.drain(10)
    assert not engine.health().healthy
    with pytest.raises(Broken, match="gone"):
        engine.submit(Numbers(1), engine.now_s() + 100)


def test_draining_ends_both_loops_and_finishes_what_is_on_the_device(device: TwoLanes) -> None:
    engine = Engine(device, COST, LIMITS)
    block = engine.submit_block(Numbers(*range(8)))
    threading.Timer(0.05, device.background_may_end.set).start()
    live = engine.submit(Numbers(1), engine.now_s() + 100)
    assert engine.drain(10)
    assert live[0].result(0)["double"] == 2
    assert block.done()


def test_rows_that_fail_after_the_engine_died_are_told_so(device: TwoLanes) -> None:
    engine = Engine(device, COST, LIMITS)
    block = engine.submit_block(Numbers(1, -1, 3, 4))
    assert device.launched.wait(120)
    device.lost = True
    live = engine.submit(Numbers(5), engine.now_s() + 100)
    with pytest.raises(DeviceLost):
        live[0].result(120)
    device.lost = False
    device.background_may_end.set()
    with pytest.raises(Broken, match="gone"):
        block.result(120)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=40))
def test_shares_of_the_device_sum_to_the_time_it_was_busy(events: list[tuple[int, float]]) -> None:
    device_time, now_s, on, shares_s, busy_s = DeviceTime(), 0.0, set[int](), 0.0, 0.0
    for call, passed_s in events:
        now_s += passed_s
        busy_s += passed_s if on else 0.0
        if call in on:
            shares_s += device_time.ended(call, now_s)
        else:
            device_time.began(call, now_s)
        on ^= {call}
    for call in on:
        shares_s += device_time.ended(call, now_s)
    assert device_time.busy_s == pytest.approx(busy_s)
    assert shares_s == pytest.approx(busy_s)
