from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_two_slots import Numbers

from twoshift.engine import Engine
from twoshift.errors import Broken, DeviceLost, Late
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.types import Lane

COST = CallCost.line(1e-3, 1e-4)
LIMITS = LaneLimits(max_rows=8, slo_s=1000.0)


class Done:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def wait(self) -> Columns:
        return self._columns


class Halves:
    """A device of two lanes, in which a row 100 lasts until both have one."""

    info = RuntimeInfo("fake", "0", "fake", "cpu", "fp32", 512, ("double",))
    lanes = 2

    def __init__(self) -> None:
        self.whole: list[int] = []  # rows of calls that had the device whole
        self.both = threading.Barrier(2)
        self.inside = 0

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        return Numbers(*rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Done:
        assert not self.inside
        values = _values(parts)
        self.whole += values
        return _doubled(values)

    def launch_beside(self, parts: Sequence[Prepared]) -> Done:
        self.inside += 1
        try:
            values = _values(parts)
            if 100 in values:
                self.both.wait(120)
            return _doubled(values)
        finally:
            self.inside -= 1

    def close(self) -> None:
        pass


def _values(parts: Sequence[Prepared]) -> list[int]:
    return [value for part in parts if isinstance(part, Numbers) for value in part.values]


def _doubled(values: list[int]) -> Done:
    if -1 in values:
        raise ValueError("poison")
    if -2 in values:
        raise DeviceLost("gone")
    return Done({"double": np.array(values) * 2})


@pytest.fixture
def device() -> Halves:
    return Halves()


def test_rows_that_wait_together_run_side_by_side(device: Halves) -> None:
    with Engine(device, COST, LIMITS) as engine:
        for _ in range(20):
            rows = engine.submit(Numbers(100, 100), engine.now_s() + 100)  # one waits for the other
            assert [row.result(120)["double"] for row in rows] == [200, 200]
        stats = engine.stats()
        assert stats.calls == 40
        assert sum(use.device_s for use in stats.lanes.values()) == pytest.approx(stats.busy_s)
        assert not device.whole


def test_a_row_that_is_alone_has_the_whole_device(device: Halves) -> None:
    with Engine(device, COST, LIMITS) as engine:
        assert engine.submit(Numbers(7), engine.now_s() + 100)[0].result(120)["double"] == 14
        assert device.whole == [7]


class Held(Halves):
    """One on which the row 50 lasts until it is let go, and a row 100 until there are two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end, self.two = threading.Event(), threading.Event(), threading.Event()
        self.hundreds = 0

    def launch_beside(self, parts: Sequence[Prepared]) -> Done:
        values = _values(parts)
        if 50 in values:
            self.begun.set()
            assert self.may_end.wait(120)
        self.hundreds += values.count(100)
        if self.hundreds > 1:
            self.two.set()
        if 100 in values and not self.two.wait(120):
            raise TimeoutError("the other lane rests")
        return _doubled(values)


class Long(Numbers):
    """A row that is too long for a lane."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.full(len(self.values), 250_000)


def test_a_lane_that_rests_gets_its_part_once_a_row_for_all_lanes_is_given_up() -> None:
    device, now_s, looks = Held(), [0.0], list[float]()

    def clock() -> float:
        looks.append(now_s[0])
        return looks[-1]

    with Engine(device, CallCost.line(10.0, 1e-3), LIMITS, clock=clock) as engine:
        first = engine.submit(Numbers(50, 1), 900.0)
        assert first[1].result(120)["double"] == 2
        assert device.begun.wait(120)
        long = engine.submit(Long(7), 300.0)[0]
        rows = engine.submit(Numbers(100, 100), 1e6)
        seen = len(looks)
        engine.live.wake()
        while len(looks) == seen:  # until the other lane has seen that it is not its turn
            time.sleep(0.001)
        now_s[0] = 45.0  # it can no longer be in time
        device.may_end.set()
        with pytest.raises(Late):
            long.result(120)
        assert [row.result(120)["double"] for row in rows] == [200, 200]


def test_a_block_fills_both_lanes_and_live_rows_come_between(device: Halves) -> None:
    with Engine(device, COST, LIMITS) as engine:
        block = engine.submit_block(Numbers(*[100] * 1600))  # calls of 8 rows, two by two
        live = [engine.submit(Numbers(value), engine.now_s() + 100)[0] for value in range(50)]
        assert [row.result(120)["double"] for row in live] == [2 * value for value in range(50)]
        device.both.abort()  # the last one may be alone
        errors = block.result(120).errors
        assert all(isinstance(error, threading.BrokenBarrierError) for error in errors.values())
        assert engine.stats().lanes[Lane.ONLINE].rows == 50


def test_a_bad_row_is_found_in_either_lane(device: Halves) -> None:
    with Engine(device, COST, LIMITS) as engine:
        block = engine.submit_block(Numbers(*range(30), -1, *range(31, 40)))
        live = engine.submit(Numbers(5, -1, 6, 7), engine.now_s() + 100)
        assert [live[k].result(120)["double"] for k in (0, 2, 3)] == [10, 12, 14]
        with pytest.raises(ValueError, match="poison"):
            live[1].result(120)
        assert list(block.result(120).errors) == [30]


def test_a_device_lost_in_one_lane_ends_all(device: Halves) -> None:
    engine = Engine(device, COST, LIMITS)
    with pytest.raises(Broken, match="gone"):
        engine.submit_block(Numbers(*range(30), -2)).result(120)
    assert engine.drain(10)
    with pytest.raises(Broken, match="gone"):
        engine.submit(Numbers(1), engine.now_s() + 100)
