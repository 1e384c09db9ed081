"""A user's own code behind a server: it may take its time, fail, or never come back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from numpy.typing import NDArray

from twoshift.endpoints.faults import fault_of
from twoshift.engine import Engine
from twoshift.errors import DeviceLost, InvalidInput, Late, TooLarge
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.host import Visit
from twoshift.serve.model import ServedModel
from twoshift.serve.service import Service, close_models
from waiting import until, until_async

COST, LIMITS = CallCost.line(0.001, 0.06), LaneLimits(slo_s=60.0)
INFO = RuntimeInfo("m", "0", "python", "cpu", "fp32", 512, ("size",), prepare_waits=True)


@dataclass
class Careful:
    """Sizes of texts; preparing them waits for the gate, and so does predicting them."""

    prepare_gate: threading.Event = field(default_factory=threading.Event)
    predict_gate: threading.Event = field(default_factory=threading.Event)
    prepared: list[Any] = field(default_factory=list)
    predicted: int = 0
    fails: Exception | None = None

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        self.prepared += rows
        self.prepare_gate.wait(120)
        return ColumnRows.from_rows([{"size": len(row)} for row in rows])

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self.predict_gate.wait(120)
        self.predicted += len(columns["size"])
        if self.fails is not None:
            raise self.fails
        return columns


@pytest.fixture
def careful() -> Iterator[Careful]:
    made = Careful()
    made.prepare_gate.set()
    made.predict_gate.set()
    yield made
    made.prepare_gate.set()
    made.predict_gate.set()


@pytest.fixture
def service(careful: Careful) -> Iterator[Service]:
    made = served(careful)
    yield made
    careful.prepare_gate.set()
    careful.predict_gate.set()
    made.close()


def served(careful: Careful, **info: Any) -> Service:
    engine = Engine(HostModel(replace(INFO, **info), careful), COST, LIMITS)
    return Service(
        Deployments({"m": ServedModel("m", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 4096))})
    )


def run(service: Service, test: Callable[[], Awaitable[Any]]) -> Any:
    async def started() -> Any:
        service.start()
        return await test()

    return asyncio.run(started())


def asked(service: Service, *rows: Any, timeout_s: float | None = None) -> Any:
    return service.answer(service.find("m"), rows, timeout_s, time.monotonic())


def test_a_users_preparation_does_not_hold_up_the_server(service: Service, careful: Careful) -> None:
    careful.prepare_gate.clear()

    async def beside() -> None:
        waiting = asyncio.ensure_future(asked(service, "a"))
        await until_async(lambda: careful.prepared)  # the loop goes on
        careful.prepare_gate.set()
        assert (await waiting).rows[0]["size"] == 1

    run(service, beside)


def test_rows_that_are_not_prepared_in_time_are_late(service: Service, careful: Careful) -> None:
    careful.prepare_gate.clear()
    with pytest.raises(Late, match="not prepared"):
        run(service, lambda: asked(service, "a", timeout_s=0.05))


def test_what_rows_cost_that_were_prepared_too_late_is_learned(service: Service, careful: Careful) -> None:
    careful.prepare_gate.clear()
    policy = service.host.policy

    async def late() -> None:
        visit = Visit(service.host, 100)
        visit.begin()
        with pytest.raises(Late, match="not prepared"):
            await service.answer(service.models["m"], ["a"], 0.05, time.monotonic(), visit=visit)
        visit.end()
        assert policy.before.seen == 0
        careful.prepare_gate.set()
        await until_async(lambda: policy.before.seen)

    run(service, late)
    assert policy.before.seconds(100) > 0
    assert policy.backlog.inside == policy.backlog.waiting == 0


@pytest.mark.parametrize("late_s", [0.0, 1000.0])
def test_a_reply_that_is_written_too_late_leaves_more_room_for_others(service: Service, late_s: float) -> None:
    policy = service.host.policy

    async def replied() -> None:
        visit = Visit(service.host, 100)
        visit.begin()
        await service.answer(service.models["m"], ["a"], 500.0, time.monotonic(), visit=visit)
        visit.promise(500.0, time.monotonic() + 400.0 - late_s)
        visit.answered(time.monotonic())
        before_s = policy.reserve_s(500.0, time.monotonic())
        visit.end()
        assert (policy.reserve_s(500.0, time.monotonic()) > before_s + 10.0) == (late_s > 0)

    run(service, replied)


def test_a_client_that_goes_as_its_rows_are_ready_costs_no_call(
    service: Service, careful: Careful, monkeypatch: pytest.MonkeyPatch
) -> None:
    careful.prepare_gate.clear()

    async def gone() -> None:
        waiting = asyncio.ensure_future(asked(service, "a"))
        await until_async(lambda: careful.prepared)
        loop, news = asyncio.get_running_loop(), threading.Event()
        tell = loop.call_soon_threadsafe

        def telling(*arguments: Any, **more: Any) -> Any:
            told = tell(*arguments, **more)
            news.set()
            return told

        monkeypatch.setattr(loop, "call_soon_threadsafe", telling)
        careful.prepare_gate.set()
        until(news.is_set)  # the thread ends while the loop looks away, and both are news to it at once
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(service, gone)
    assert careful.predicted == 0


def test_preparation_that_does_not_come_back_is_seen(
    service: Service, careful: Careful, monkeypatch: pytest.MonkeyPatch
) -> None:
    careful.prepare_gate.clear()
    with pytest.raises(Late):
        run(service, lambda: asked(service, "a", timeout_s=0.05))
    assert service.unready() is None
    later_s = time.monotonic() + 10_000
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert "m: rows have been in preparation for 1" in str(service.unready())


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["x" * 40_000], "40,000 characters"),
        ([("x" * 30_000, "y" * 10_000)], "40,000 characters"),
        ([[7] * 10_000], "40,000 characters"),
        (["x" * 30_000] * 100, "on an idle device"),
        ([("query " * 500, "text")] * 500, "on an idle device"),
    ],
)
def test_what_can_never_be_answered_is_refused_before_it_is_prepared(
    service: Service, careful: Careful, rows: list[Any], told: str
) -> None:
    with pytest.raises(TooLarge, match=told):
        run(service, lambda: asked(service, *rows))
    assert careful.prepared == []


def test_models_that_do_not_come_back_are_left(careful: Careful) -> None:
    service = served(careful)
    careful.predict_gate.clear()
    with pytest.raises(Late):
        run(service, lambda: asked(service, "a", timeout_s=0.5))
    models = [each.backend for each in service.models.values()]
    assert not close_models(models, 0.1)
    careful.predict_gate.set()
    assert close_models(models, 10)


def test_a_model_that_fails_to_close_is_told(careful: Careful, monkeypatch: pytest.MonkeyPatch) -> None:
    model = served(careful).find("m").backend
    close = model.close

    def failing() -> None:
        close()
        raise InvalidInput("model", "m", "a close that works")

    monkeypatch.setattr(model, "close", failing)
    with pytest.raises(InvalidInput, match="a close that works"):
        close_models([model], 10)


def test_an_error_that_is_raised_for_ever_does_not_grow(service: Service, careful: Careful) -> None:
    careful.fails = DeviceLost("gone")

    def depth() -> int:
        with pytest.raises(DeviceLost) as told:
            run(service, lambda: asked(service, "a"))
        return len(told.traceback)

    depth()
    (model,) = service.models.values()
    until(lambda: not model.health().healthy)  # its thread is about to end
    assert {depth() for _ in range(5)} == {depth()}


@pytest.mark.parametrize("said", ["x" * 100_000, "\ud800"])
def test_whatever_a_model_says_can_be_told(said: str) -> None:
    fault = fault_of(RuntimeError(said))
    assert fault.status == 500
    assert len(fault.message.encode()) < 3000
