"""A fleet that grows and shrinks while it is used; the front is this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from test_replicas import SOURCE, lives

pytest.importorskip("uvloop")
pytest.importorskip("pyarrow")

from twoshift.errors import TryLater
from twoshift.fleet.model import FleetModel
from twoshift.policy.reconcile import ReconcilePolicy, ReconcileSettings
from twoshift.serve.deployments import Deployments
from twoshift.serve.model import Answer
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.service import Service
from twoshift.wiring.backends import fleet_model
from twoshift.wiring.blob_stores import blobs_for

pytestmark = pytest.mark.slow
T = TypeVar("T")
WAIT_S = 60.0


class Front:
    """A loop in a thread, as a server has one."""

    def __init__(self, model: FleetModel) -> None:
        self.model, self.service = model, Service(Deployments({model.name: model}))
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self._start())

    async def _start(self) -> None:
        self.service.start()

    def run(self, what: Awaitable[T]) -> T:
        return asyncio.run_coroutine_threadsafe(_awaited(what), self.loop).result(WAIT_S)

    def ask(self, text: str, timeout_s: float = 30.0) -> asyncio.Future[Any]:
        asked = self.service.answer(self.service.find(self.model.name), [text], timeout_s, time.monotonic())
        return asyncio.run_coroutine_threadsafe(asked, self.loop)  # type: ignore[return-value]

    def who(self) -> int:
        return _who(self.ask("a").result())

    def close(self) -> None:
        self.model.close()
        self.run(_all_cancelled())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _awaited(what: Awaitable[T]) -> T:
    return await what


async def _all_cancelled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _who(answer: Answer) -> int:
    return int(answer.rows[0]["embedding"][1])


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    (tmp_path / "m.py").write_text(SOURCE)
    settings = ModelSettings(model=f"{tmp_path}/m.py:Sized", slo_ms=500, max_batch=4)
    model = fleet_model("Sized", settings, lambda _: None, most=2)
    assert isinstance(model, FleetModel)
    made = Front(model)
    yield made
    made.close()


def test_it_grows_and_shrinks_and_what_had_begun_is_answered(front: Front, tmp_path: Path) -> None:
    (first,) = {front.who() for _ in range(3)}
    front.model.scale_to(2)
    assert front.model.replicas().starting == 1
    until(lambda: front.model.replicas().ready == 2)
    until(lambda: len({front.who() for _ in range(4)}) == 2)
    told = [tmp_path / f"told-{k}" for k in range(2)]
    running = []
    for each in told:  # one on each
        running.append(front.ask(f"sleep 1.5 {each}"))
        until(each.exists)
    front.model.scale_to(1)
    until(lambda: front.model.replicas().ready == 1)
    assert {_who(each.result()) for each in running} == {int(each.read_text()) for each in told}
    until(lambda: sum(lives(int(each.read_text())) for each in told) == 1)
    assert front.model.replicas().starting == 0
    assert len({front.who() for _ in range(4)}) == 1
    assert first in {int(each.read_text()) for each in told}


def test_a_fleet_that_cannot_start_again_says_why_and_refuses_at_once(front: Front, tmp_path: Path) -> None:
    supervisor: Any = front.model.group.fleet
    supervisor.policy = ReconcilePolicy(ReconcileSettings(first_wait_s=0.01))
    (tmp_path / "broken").touch()
    died = front.ask("die 0")
    with pytest.raises(TryLater, match="lost while it ran"):
        died.result()
    until(lambda: "it does not load today" in (front.service.unready() or ""))
    with pytest.raises(TryLater, match="no replica is available"):
        front.ask("a").result()
    (tmp_path / "broken").unlink()
    front.model.scale_to(1)
    until(lambda: front.service.unready() is None)
    assert front.who() > 0


def test_a_job_takes_up_a_replica_that_comes_and_loses_nothing_with_one_that_goes(front: Front, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from twoshift.batch.coordinator import Ending
    from twoshift.batch.engine_pool import EnginePool
    from twoshift.batch.job import Job
    from twoshift.batch.job_on_fleet import JobOnFleet
    from twoshift.batch.job_seats import LiveFleet
    from twoshift.batch.settings import JobSettings

    rows = 12_000
    pq.write_table(pa.table({"id": range(rows), "text": [f"w{k}" for k in range(rows)]}), tmp_path / "in.parquet")
    settings = JobSettings(
        inputs=(str(tmp_path / "in.parquet"),), output=str(tmp_path / "out"), model="Sized", text="text", keep=("id",),
        shard_rows=50,
    )  # fmt: skip
    lane = JobOnFleet(settings, LiveFleet(front.model.lane_replicas, list))
    job = Job(settings, blobs_for, EnginePool(settings, lane, blobs_for), lane)
    most, both_s = 0, 0.0

    def report(now: Any) -> None:
        nonlocal most, both_s
        lane.tick()
        lane.follow(now)
        most = max(most, now.workers)
        both_s = both_s or (time.monotonic() if most == 2 else 0.0)
        front.model.scale_to(1 if both_s and time.monotonic() > both_s + 1 else 2)

    result = job.run(lambda _: None, report)
    assert result.ending is Ending.DONE
    assert most == 2
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert table["id"].to_pylist() == list(range(rows))
    assert len({each[1] for each in table["embedding"].to_pylist()}) == 2
    assert lane.used().device_s > 1
    assert result.summary is not None
    assert result.summary.rows == rows
