"""Requests to results without a transport."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.endpoints.faults import fault_of
from twoshift.engine import Engine
from twoshift.errors import InvalidInput, Late, NotFound, TooLarge, TryLater
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import Derived, derive
from twoshift.serve.model import Answer, ServedModel
from twoshift.serve.service import Service
from twoshift.types import Lane, Tensor
from waiting import until, until_async

COST = CallCost.line(0.001, 1e-5)
LIMITS = LaneLimits(slo_s=600.0, max_rows=64)


class Doubling:
    """Numbers, doubled; a negative one fails, and everybody waits while `gate` is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = 0  # calls
        self.seen: list[int] = []

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self.begun += 1
        self.gate.wait(120)
        self.seen += columns["x"].tolist()
        if (columns["x"] < 0).any():
            raise ArithmeticError("negative")
        return {"double": 2 * columns["x"]}


@pytest.fixture
def doubling() -> Doubling:
    return Doubling()


@pytest.fixture
def service(doubling: Doubling) -> Iterator[Service]:
    engine = Engine(HostModel(RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, ("double",)), doubling), COST, LIMITS)
    served = Service(
        Deployments({"m": ServedModel("m", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 4096))})
    )
    yield served
    doubling.gate.set()
    served.close()


def run(service: Service, test: Callable[[], Any]) -> Any:
    async def started() -> Any:
        service.start()
        return await test()

    return asyncio.run(started())


def asked(service: Service, *values: int, timeout_s: float | None = None) -> Any:
    rows = [{"x": value} for value in values]
    return service.answer(service.find("m"), rows, timeout_s, time.monotonic())


def waiting_rows(service: Service) -> int:
    return service.find("m").backend.waiting()[Lane.ONLINE].rows


def test_rows_come_back_in_order_with_their_stages(service: Service) -> None:
    answer: Answer = run(service, lambda: asked(service, 1, 2, 3))
    assert [row["double"] for row in answer.rows] == [2, 4, 6]
    assert answer.stages.forward > 0
    assert answer.stages.call_rows == 3
    assert service.find("m").outputs == (Tensor("double", "int64"),)


def test_a_row_that_fails_is_named_and_harms_no_other_request(service: Service) -> None:
    async def both() -> list[Any]:
        return await asyncio.gather(asked(service, 1, -1), asked(service, 5), return_exceptions=True)

    failed, answered = run(service, both)
    told = fault_of(failed)
    assert told.status == 500
    assert "at row 1 of 2: ArithmeticError" in told.message
    assert "negative" in told.message
    assert answered.rows[0]["double"] == 10


def test_what_is_not_answered_by_its_deadline_is_late_and_is_not_run_later(
    service: Service, doubling: Doubling
) -> None:
    doubling.gate.clear()

    async def behind_another() -> None:
        first = asyncio.ensure_future(asked(service, 1))
        await until_async(lambda: doubling.begun)
        with pytest.raises(Late):
            await asked(service, 2, timeout_s=0.1)
        doubling.gate.set()
        await first

    run(service, behind_another)
    assert doubling.seen == [1]


def test_a_request_whose_client_has_gone_costs_no_call(service: Service, doubling: Doubling) -> None:
    doubling.gate.clear()

    async def gone() -> None:
        first = asyncio.ensure_future(asked(service, 1))
        await until_async(lambda: doubling.begun)
        second = asyncio.ensure_future(asked(service, 2))
        await until_async(lambda: waiting_rows(service) == 1)
        second.cancel()
        await until_async(lambda: waiting_rows(service) == 0)
        doubling.gate.set()
        await first

    run(service, gone)
    assert doubling.seen == [1]


def test_a_full_or_draining_server_says_when_to_come_back(service: Service) -> None:
    service.drain()
    with pytest.raises(TryLater) as told:
        run(service, lambda: asked(service, 1))
    assert told.value.retry_after_s > 0
    assert service.unready() == "the server is shutting down"


def test_requests_that_can_never_be_answered_are_refused_at_once(service: Service) -> None:
    with pytest.raises(InvalidInput, match="at least one row"):
        run(service, lambda: asked(service))
    with pytest.raises(TooLarge, match="at most 4,096"):
        run(service, lambda: asked(service, *range(5000)))


def test_an_unknown_model_is_told_with_the_known_ones(service: Service) -> None:
    with pytest.raises(NotFound, match="one of these models: m"):
        service.find("n")
    with pytest.raises(NotFound):
        service.unready("n")


def test_a_call_that_does_not_come_back_makes_it_unready(service: Service, doubling: Doubling) -> None:
    assert service.unready() is None
    model = service.find("m").backend
    assert isinstance(model, ServedModel)
    rows = model.engine.runtime.prepare([{"x": np.int64(1)}])
    doubling.gate.clear()
    future = model.engine.submit(rows, model.engine.now_s() + 60)[0]
    until(lambda: not model.engine.health(0.01).healthy)
    assert "on the device" in model.engine.health(0.01).reason
    doubling.gate.set()
    assert future.result()["double"] == 2


def test_an_objective_below_one_call_cannot_be_kept_and_is_no_deadline() -> None:
    derived = derive(CallCost.line(0.037, 0.001), LaneLimits(slo_s=0.02, outside_s=0.002), RowSize.uniform(1), 100)
    assert not derived.keeps_slo
    assert derived.least_slo_s == derived.timeout_s == 0.08
    assert "because one row takes 38 ms; try --slo-ms 80 (slo_ms = 80 in a configuration file)" in derived.warning


def test_an_objective_that_can_be_kept_is_the_deadline_of_requests_without_one() -> None:
    derived = derive(CallCost.line(0.037, 0.001), LaneLimits(slo_s=0.05), RowSize.uniform(1), 100)
    assert (derived.keeps_slo, derived.timeout_s, derived.warning) == (True, 0.05, "")


def test_what_is_derived_follows_the_curve() -> None:
    derived = derive(CallCost.line(0.004, 0.00025), LaneLimits(slo_s=0.05), RowSize.uniform(1), 100)
    assert derived.call_budget_s == 0.025
    assert derived.largest_live_rows == 84  # (25 - 4) / 0.25
    assert derived.admission_rows == 100  # two calls of 84, were there no bound
    assert derived.capacity_rows_per_s == pytest.approx(84 / 0.025)


def derived_within(slowdown: float | None, lanes: int = 1) -> Derived:
    limits = LaneLimits(slo_s=1.0, live_slowdown=slowdown, lanes=lanes)
    return derive(CallCost.line(0.004, 0.002), limits, RowSize.uniform(8), 100, CallCost.line(0.004, 0.001))


def test_what_a_job_costs_live_callers_is_derived() -> None:
    free = derived_within(None)
    assert free.background_call_s < 0.2 < free.call_budget_s  # the knee, not what the SLO allows
    waits_s, rides_s = 0.02 - 0.012 + free.background_call_s / 2, free.background_call_s - 0.012
    assert free.live_slowdown == pytest.approx(1 + (waits_s + rides_s) / 0.012)
    bounded = derived_within(3.0)
    assert bounded.live_slowdown == pytest.approx(3.0)
    assert 0.5 < bounded.background_share <= 1  # the pause makes up for the row that goes beyond
    assert bounded.background_call_s < free.background_call_s
    spaced = derived_within(1.2)
    assert spaced.largest_background_rows == 1
    assert 0 < spaced.background_share < 1
    assert spaced.live_slowdown == pytest.approx(1.2)
    assert derived_within(1.2, lanes=2).live_slowdown == pytest.approx(1.2)
    long = derive(
        CallCost.line(0.06, 0.0), LaneLimits(slo_s=0.1, lanes=2), RowSize.uniform(1), 9, CallCost.line(0.03, 0)
    )
    assert (long.largest_background_rows, long.background_call_s) == (1, 0.03)  # it has both lanes
    never = derived_within(1.0)
    assert (never.background_share, never.background_call_s, never.live_slowdown) == (0.0, 0.0, 1.0)
