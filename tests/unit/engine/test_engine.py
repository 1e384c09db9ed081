from __future__ import annotations

import asyncio
import math
import os
import re
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sampling import examples
from twoshift.engine import BlockResult, Engine
from twoshift.engine.results import RowFuture
from twoshift.engine.waiting import BlockOwner, LiveRows
from twoshift.errors import Broken, DeviceLost, InvalidInput, Late, OutOfMemory, TooLarge, TryLater
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.types import CallSize, Lane

COST = CallCost.line(0.004, 0.00025)
LIMITS = LaneLimits(max_rows=32, max_tokens=10_000, slo_s=0.05)
POISON = -1


@dataclass(frozen=True)
class FakeRows:
    """Rows that are numbers; a row's length is given beside it."""

    values: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.values), bool)

    @property
    def signature(self) -> None:
        return None

    def slice(self, start: int, stop: int) -> FakeRows:
        return FakeRows(self.values[start:stop], self.lengths[start:stop])

    def take(self, order: NDArray[np.int64]) -> FakeRows:
        return FakeRows(self.values[order], self.lengths[order])


def rows(*values: int, length: int = 1) -> FakeRows:
    return FakeRows(np.array(values, np.int64), np.full(len(values), length, np.int64))


class FakeDevice:
    """Doubles numbers, in virtual time; fails on poison, and on more tokens than its memory holds."""

    info = RuntimeInfo("fake", "0", "fake", "cpu", "fp32", 512, ("double",))

    def __init__(self, memory_tokens: int = 10**9) -> None:
        self.now_s = 0.0
        self.cost = COST
        self.memory_tokens = memory_tokens
        self.calls: list[list[int]] = []
        self.lost = False
        self.closed = False

    def clock(self) -> float:
        return self.now_s

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        raise NotImplementedError

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> FakeDevice:
        fakes = [part for part in parts if isinstance(part, FakeRows)]
        values = np.concatenate([part.values for part in fakes])
        size = CallSize.of(np.concatenate([part.lengths for part in fakes]).tolist())
        self.now_s += self.cost.seconds(size)
        self.calls.append(values.tolist())
        if self.lost:
            raise DeviceLost("the device fell off the bus")
        if size.tokens > self.memory_tokens:
            raise OutOfMemory(f"{size.tokens} tokens")
        if POISON in values:
            raise ValueError("poison")
        self._columns = {"double": values * 2}
        return self

    def wait(self) -> Columns:
        return self._columns

    def close(self) -> None:
        self.closed = True


def driven(device: FakeDevice, limits: LaneLimits = LIMITS) -> Engine:
    """An engine without a thread: the test turns the crank."""
    return Engine(device, COST, limits, clock=device.clock, start=False)


def crank(engine: Engine, turns: int = 10_000) -> None:
    for _ in range(turns):
        if not engine._policy.background and not len(engine._policy.live):
            return
        engine.step(0.0)
    raise AssertionError("it never came to an end")


def test_live_rows_and_a_block_ride_in_one_call() -> None:
    device = FakeDevice()
    engine = driven(device)
    live = engine.submit(rows(1, 2), deadline_s=0.05)
    block = engine.submit_block(rows(10, 11, 12))
    crank(engine)
    assert device.calls == [[1, 2, 10, 11, 12]]
    assert [future.result()["double"] for future in live] == [2, 4]
    assert live[0].result().call_rows == 5
    assert block.result().columns["double"].tolist() == [20, 22, 24]


@pytest.mark.parametrize("is_woken", [True, False])
def test_rows_wait_for_those_that_are_to_come_until_it_is_woken_or_for_as_long(is_woken: bool) -> None:
    device = FakeDevice()
    engine = driven(device)
    engine.live.gather_until_s = device.now_s + 0.004
    first = engine.submit_block(rows(1))  # it wakes nobody
    engine.step(0.0)
    assert device.calls == []
    if is_woken:
        engine.live.wake()
    else:
        device.now_s += 0.005
    engine.step(0.0)
    assert device.calls == [[1]]
    assert first.result().columns["double"].tolist() == [2]


def test_an_engine_that_ends_waits_for_no_more_rows() -> None:
    device = FakeDevice()
    engine = driven(device)
    live = engine.submit(rows(1), deadline_s=0.05)
    engine.live.gather_until_s = device.now_s + 0.004
    engine.drain(0.0)
    while engine.step(0.0):
        pass
    assert live[0].result()["double"] == 2


def test_a_block_longer_than_a_call_comes_back_in_order() -> None:
    engine = driven(FakeDevice())
    block = engine.submit_block(rows(*range(200)))
    crank(engine)
    assert block.result().columns["double"].tolist() == [2 * i for i in range(200)]
    assert block.result().errors == {}


@pytest.mark.parametrize("guilty", [0, 17, 99])
def test_a_bad_row_of_a_block_is_found_and_the_others_are_served(guilty: int) -> None:
    engine = driven(FakeDevice())
    values = list(range(100))
    values[guilty] = POISON
    block = engine.submit_block(rows(*values))
    crank(engine)
    result = block.result()
    assert list(result.errors) == [guilty]
    assert str(result.errors[guilty]) == "poison"
    assert [v for i, v in enumerate(result.columns["double"]) if i != guilty] == [
        2 * i for i in range(100) if i != guilty
    ]


def test_a_bad_live_row_fails_alone_and_a_block_that_rode_with_it_is_served() -> None:
    engine = driven(FakeDevice())
    live = engine.submit(rows(1, POISON, 3, 4), deadline_s=0.05)
    block = engine.submit_block(rows(10, 11))
    crank(engine)
    assert [f.result()["double"] for i, f in enumerate(live) if i != 1] == [2, 6, 8]
    with pytest.raises(ValueError, match="poison"):
        live[1].result()
    assert block.result().columns["double"].tolist() == [20, 22]


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "red", "blue"]), st.lists(st.sampled_from([1, 2, 3, POISON]), min_size=1, max_size=12)
        )
    )
)
def test_whoever_rides_with_a_bad_row_is_served_and_the_books_balance(
    requests: list[tuple[str, list[int]]],
) -> None:
    device = FakeDevice()
    engine = driven(device, LaneLimits(max_rows=8, slo_s=1000.0))
    lives, blocks = [], []
    for tenant, values in requests:
        if tenant:
            futures = [RowFuture(lambda: None) for _ in values]
            engine.live.submit_together([LiveRows(rows(*values), 0, futures, 1000.0, tenant)])
            lives.append((values, futures))
        else:
            blocks.append((values, engine.submit_block(rows(*values))))
    crank(engine)
    for values, futures in lives:
        for value, future in zip(values, futures, strict=True):
            assert future.exception() is not None if value == POISON else future.result()["double"] == 2 * value
    for values, block in blocks:
        assert set(block.result().errors) == {i for i, v in enumerate(values) if v == POISON}
        good = [i for i, v in enumerate(values) if v != POISON]
        assert all(block.result().columns["double"][i] == 2 * values[i] for i in good)
    stats = engine.stats()
    assert stats.busy_s == pytest.approx(device.now_s)
    assert sum(use.device_s for use in stats.lanes.values()) == pytest.approx(stats.busy_s)
    assert stats.calls == len(device.calls)
    online = stats.lanes[Lane.ONLINE]
    assert sum(use.device_s for use in stats.tenants.values()) == pytest.approx(online.device_s)
    for tenant, use in stats.tenants.items():
        assert use.rows == sum(len(values) for whose, values in requests if whose == tenant)
        assert use.device_s > 0


def test_the_time_of_a_call_is_shared_among_tenants_by_tokens() -> None:
    device = FakeDevice()
    engine = driven(device)
    for tenant, lengths in (("red", [6, 2]), ("blue", [4])):
        given = FakeRows(np.arange(len(lengths)), np.array(lengths))
        futures = [RowFuture(lambda: None) for _ in lengths]
        engine.live.submit_together([LiveRows(given, 0, futures, 0.05, tenant)])
    engine.submit_block(rows(10, 11))
    crank(engine)
    assert len(device.calls) == 1
    stats = engine.stats()
    red, blue = stats.tenants["red"], stats.tenants["blue"]
    assert (red.rows, red.tokens, blue.rows, blue.tokens) == (2, 8, 1, 4)
    assert red.device_s == pytest.approx(2 * blue.device_s)
    assert red.device_s + blue.device_s == pytest.approx(stats.busy_s - stats.lanes[Lane.BATCH].device_s)


def test_rows_of_an_owner_that_has_left_never_run() -> None:
    device = FakeDevice()
    engine = driven(device)
    gone, here = BlockOwner(1), BlockOwner(2)
    engine.hold(gone)
    left, stays = engine.submit_block(rows(1, 2), owner=gone), engine.submit_block(rows(3), owner=here)
    engine.retire(gone)
    crank(engine)
    assert device.calls == [[3]]
    assert stays.result().columns["double"].tolist() == [6]
    with pytest.raises(TryLater, match="has left"):
        left.result(0)


def test_out_of_memory_splits_lowers_the_cap_and_raises_it_again_slowly() -> None:
    device = FakeDevice(memory_tokens=100)
    engine = driven(device, LaneLimits(max_rows=512, max_tokens=400))
    block = engine.submit_block(rows(*range(400)))
    crank(engine)
    assert block.result().columns["double"].tolist() == [2 * i for i in range(400)]
    assert block.result().errors == {}
    assert engine.stats().max_tokens == 100
    device.memory_tokens = 10**9
    for _ in range(150):
        engine.submit_block(rows(*range(400)))
        crank(engine)
    assert 110 <= engine.stats().max_tokens <= 133


def test_a_row_that_fits_no_memory_fails_and_the_rest_goes_on() -> None:
    device = FakeDevice(memory_tokens=50)
    engine = driven(device, LaneLimits(max_rows=512, max_tokens=400))
    huge, small = engine.submit_block(rows(7, length=60)), engine.submit_block(rows(1, 2, 3))
    crank(engine)
    assert isinstance(huge.result().errors[0], OutOfMemory)
    assert small.result().columns["double"].tolist() == [2, 4, 6]


def test_live_rows_survive_a_call_that_ran_out_of_memory() -> None:
    engine = driven(FakeDevice(memory_tokens=3))
    futures = engine.submit(rows(*range(8)), deadline_s=10.0)
    crank(engine)
    assert [future.result()["double"] for future in futures] == [2 * i for i in range(8)]


def test_a_lost_device_fails_everything_clearly_and_the_engine_is_dead() -> None:
    device = FakeDevice()
    device.lost = True
    engine = Engine(device, COST, LIMITS, clock=device.clock)
    futures = [*engine.submit(rows(1), deadline_s=0.05), engine.submit_block(rows(*range(100)))]
    for future in futures:
        with pytest.raises(Broken, match="fell off the bus"):
            future.result(timeout=120)
    engine._join(120)
    assert not engine.health().healthy
    assert "fell off the bus" in engine.health().reason
    with pytest.raises(Broken, match="fell off the bus"):
        engine.submit(rows(1), deadline_s=1.0)


def test_cancelling_before_the_launch_costs_no_call() -> None:
    device = FakeDevice()
    engine = driven(device)
    live, block = engine.submit(rows(1), deadline_s=0.05), engine.submit_block(rows(2, 3))
    assert live[0].cancel()
    assert block.cancel()
    assert block.cancel()
    crank(engine)
    assert device.calls == []


def test_overload_is_refused_at_once_with_a_time_to_come_back() -> None:
    engine = driven(FakeDevice())
    for _ in range(4):
        engine.submit(rows(*range(32)), deadline_s=0.05)
    with pytest.raises(TryLater) as refused:
        engine.submit(rows(*range(32)), deadline_s=0.05)
    assert 0 < refused.value.retry_after_s < 0.1
    with pytest.raises(TooLarge):
        engine.submit(rows(1), deadline_s=0.0001)


def test_rows_that_may_be_late_are_tried_on_an_idle_device_and_refused_for_good_once_that_has_shown_it() -> None:
    device = FakeDevice()
    engine = driven(device)
    for _ in range(3):
        (tried,) = engine.submit(rows(1), deadline_s=device.now_s + 0.002)
        crank(engine)
        assert tried.result()["double"] == 2
    with pytest.raises(TooLarge, match="x-request-timeout-ms"):
        engine.submit(rows(1), deadline_s=device.now_s + 0.002)


def test_a_live_row_whose_time_ran_out_is_told_so() -> None:
    device = FakeDevice()
    engine = driven(device)
    futures = engine.submit(rows(1), deadline_s=0.02)
    device.now_s = 0.019
    crank(engine)
    with pytest.raises(Late, match="deadline"):
        futures[0].result()
    assert device.calls == []


def test_background_calls_come_back_under_the_budget_when_the_device_slows_down_by_half() -> None:
    device = FakeDevice()
    engine = driven(device, LaneLimits(max_rows=1024, slo_s=0.05))
    engine.submit_block(rows(*range(20_000)))
    for _ in range(50):
        engine.step(0.0)
    device.cost = COST.scaled(2.0)
    for _ in range(20):
        engine.step(0.0)
    began_s = device.now_s
    engine.step(0.0)
    assert device.now_s - began_s <= LIMITS.budget_s * 1.02


def test_threads_and_asyncio_are_both_served_by_the_running_loop() -> None:
    device = FakeDevice()
    engine = Engine(device, COST, LaneLimits(max_rows=32, slo_s=1000.0), clock=device.clock)
    results: list[int] = []

    def ask(value: int) -> None:
        results.append(engine.submit(rows(value), deadline_s=1000.0)[0].result(120)["double"])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()

    async def gather() -> list[int]:
        futures = engine.submit(rows(*range(100, 110)), deadline_s=1000.0)
        return [(await asyncio.wrap_future(future))["double"] for future in futures]

    assert asyncio.run(gather()) == [2 * i for i in range(100, 110)]
    for thread in threads:
        thread.join(120)
    assert sorted(results) == [2 * i for i in range(20)]
    engine.close()
    assert device.closed


def test_draining_finishes_live_rows_hands_blocks_back_and_takes_nothing_new() -> None:
    device = FakeDevice()
    engine = driven(device)
    live, block = engine.submit(rows(1), deadline_s=0.05), engine.submit_block(rows(*range(1000)))
    engine.drain(0)
    with pytest.raises(TryLater, match="draining"):
        engine.submit(rows(2), deadline_s=1.0)
    while engine.step(0.0):
        pass
    assert live[0].result()["double"] == 2
    with pytest.raises(TryLater, match="draining"):
        block.result()


def test_closing_fails_what_waits_and_gives_the_device_back() -> None:
    device = FakeDevice()
    engine = driven(device)
    live = engine.submit(rows(1), deadline_s=0.05)
    engine.close()
    with pytest.raises(Broken, match="closed"):
        live[0].result()
    assert device.closed


def test_the_watchdog_sees_a_row_that_waits_too_long() -> None:
    device = FakeDevice()
    engine = driven(device)
    engine.submit(rows(1), deadline_s=10.5)
    engine.submit(rows(1), deadline_s=100.0)
    assert engine.health().healthy
    device.now_s = 10.2
    assert engine.health().healthy  # it has brought the time
    device.now_s = 11.0
    assert engine.health().reason == "a row has been waiting in the queue for 11 s"


def test_waits_and_riding_rows_are_counted_by_lane() -> None:
    device = FakeDevice()
    engine = driven(device)
    engine.submit(rows(1, 2), deadline_s=0.05)
    engine.submit_block(rows(5, 6, 7), lane=Lane.MICRO)
    device.now_s = 0.01
    crank(engine)
    stats = engine.stats()
    assert stats.waits_s[Lane.ONLINE] == pytest.approx(0.02)
    assert stats.waits_s[Lane.MICRO] == pytest.approx(0.03)
    assert stats.lanes[Lane.MICRO].riding_rows == 3
    assert stats.lanes[Lane.ONLINE].rows == 2


class Answers(FakeDevice):
    """Answers calls one after the other with the columns it was given."""

    def __init__(self, *answers: Columns) -> None:
        super().__init__()
        self._answers = list(answers)

    def wait(self) -> Columns:
        return self._answers.pop(0)


def block_of(*answers: Columns, size: int = 2) -> BlockResult:
    engine = driven(Answers(*answers), LaneLimits(max_rows=size))
    future = engine.submit_block(rows(*range(size * len(answers))))
    crank(engine)
    return future.result(0)


def test_a_later_call_may_answer_with_a_wider_type() -> None:
    texts, wider = np.array(["x", "xx"]), np.array(["xxxxx", "y"])
    assert block_of({"d": texts}, {"d": wider}).columns["d"].tolist() == ["x", "xx", "xxxxx", "y"]
    assert block_of({"d": np.array([1, 2])}, {"d": np.array([0.5, 1.5])}).columns["d"].tolist() == [1, 2, 0.5, 1.5]


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ({"d": np.zeros((2, 4))}, r"rows of shape \[3\] first, and of shape \[4\] later"),
        ({"e": np.zeros((2, 3))}, r"returned the columns \['d'\] first, and \['e'\] later"),
        ({"d": np.full((2, 3), "x")}, "had the type float64 first, and <U1 later"),
    ],
)
def test_rows_of_a_call_that_answers_otherwise_than_the_first_fail_and_the_engine_lives(
    later: Columns, told: str
) -> None:
    result = block_of({"d": np.zeros((2, 3))}, later)
    assert list(result.errors) == [2, 3]
    assert re.search(told, str(result.errors[2]))


def test_a_deadline_that_is_no_number_is_refused() -> None:
    engine = driven(FakeDevice())
    with pytest.raises(InvalidInput, match="deadline_s"):
        engine.submit(rows(1), deadline_s=math.nan)
    with pytest.raises(InvalidInput, match="deadline_s"):
        engine.submit_block(rows(1), deadline_s=math.nan)


def test_a_callback_that_exits_takes_nobody_with_it() -> None:
    engine = driven(FakeDevice())
    futures = engine.submit(rows(1, 2, 3), deadline_s=0.05)
    futures[0].add_done_callback(lambda _: sys.exit("from a callback"))
    crank(engine)
    assert [future.result(0)["double"] for future in futures] == [2, 4, 6]


def test_after_a_fork_the_child_is_told_that_the_engine_is_not_there() -> None:
    device = FakeDevice()
    engine = Engine(device, COST, LIMITS, clock=device.clock)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: there are threads
        child = os.fork()
    if child == 0:
        try:
            engine.submit(rows(1), deadline_s=1.0)
        except Broken as error:
            os.write(write, f"{error} {engine.health().reason}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read().count("forked") == 2
    os.waitpid(child, 0)
    assert engine.health().healthy
    engine.close()


@pytest.mark.slow
def test_cancelling_and_settling_at_once_is_no_error() -> None:
    device = FakeDevice()
    engine = Engine(device, CallCost.line(1e-9, 1e-9), LaneLimits(slo_s=1e6), clock=device.clock)
    for _ in range(300):
        futures = engine.submit(rows(*range(8)), deadline_s=1e6)
        threads = [threading.Thread(target=future.cancel) for future in futures for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert all(future.cancelled() or future.result(120) for future in futures)
    assert engine.health().healthy
    engine.close()


def test_a_long_block_is_answered_whole_and_in_order() -> None:
    engine = driven(FakeDevice(), LaneLimits(max_rows=4096))
    block = engine.submit_block(rows(*range(40_000)))
    crank(engine)
    assert block.result(0).columns["double"].tolist() == [2 * i for i in range(40_000)]


def test_a_request_of_a_batch_may_have_as_many_rows_as_a_live_one() -> None:
    device = FakeDevice()
    engine = Engine(device, COST, LIMITS, clock=device.clock)
    assert engine.most_rows == engine.live.most_rows > 2048
    engine.close()
