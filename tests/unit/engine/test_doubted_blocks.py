"""Batch rows that a curve from a busy moment keeps off the device: they are tried, and the curve heals by them."""

from __future__ import annotations

import pytest
from test_engine import COST, LIMITS, FakeDevice, crank, rows

from twoshift.engine import BlockResult, Engine
from twoshift.errors import NoRoom

BUSY = COST.scaled(8.0)  # one row takes 34 of the 25 ms that the objective leaves


def doubting(device: FakeDevice) -> Engine:
    return Engine(device, BUSY, LIMITS, clock=device.clock, start=False)


def test_a_job_alone_on_a_server_heals_a_curve_from_a_busy_moment() -> None:
    device = FakeDevice()
    engine = doubting(device)
    block = engine.submit_block(rows(*range(200)))
    crank(engine)
    found: BlockResult = block.result()
    assert found.errors == {}
    assert found.columns["double"].tolist() == [2 * each for each in range(200)]
    assert found.device_s == pytest.approx(device.now_s)
    assert len(device.calls[0]) == 1
    assert max(map(len, device.calls)) == pytest.approx(28, abs=1)  # at the knee: it is believed again


def test_a_row_that_calls_have_shown_to_take_too_long_has_no_room() -> None:
    device = FakeDevice()
    device.cost = BUSY
    engine = doubting(device)
    block = engine.submit_block(rows(*range(20)))
    crank(engine)
    errors = block.result().errors
    assert 0 < len(device.calls) <= 5  # as many as it takes to know
    assert len(errors) == 20 - len(device.calls)
    assert all(isinstance(error, NoRoom) for error in errors.values())


def test_a_doubted_row_is_not_tried_while_live_rows_wait() -> None:
    device = FakeDevice()
    engine = doubting(device)
    block = engine.submit_block(rows(7))
    live = engine.submit(rows(1), deadline_s=10.0)
    crank(engine)
    assert device.calls == [[1], [7]]
    assert live[0].result()["double"] == 2
    assert block.result().columns["double"].tolist() == [14]


def test_a_doubted_row_that_fails_is_an_error_of_its_own() -> None:
    device = FakeDevice()
    engine = doubting(device)
    block = engine.submit_block(rows(3, -1, 4))
    crank(engine)
    assert {place: str(error) for place, error in block.result().errors.items()} == {1: "poison"}


def test_a_doubted_row_is_answered_before_an_engine_that_drains_ends() -> None:
    device = FakeDevice()
    engine = doubting(device)
    block = engine.submit_block(rows(7))
    engine.step(0.0)  # it is asked as a live row now
    engine.drain(0.0)
    crank(engine)
    assert block.result().columns["double"].tolist() == [14]
