"""Backends of each kind behind one loop, as a server has them: in this process, child processes, Ray."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from programs import python_path

from twoshift.batch.coordinator import Ending
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.job import Job
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import EngineReplica, LiveFleet
from twoshift.batch.settings import JobSettings
from twoshift.errors import TryLater
from twoshift.serve.deployments import Deployments
from twoshift.serve.model import Answer
from twoshift.serve.service import Service
from twoshift.wiring.blob_stores import blobs_for

__all__ = [
    "HERE",
    "KINDS",
    "MARKS",
    "MOST_WAITING",
    "NAME",
    "PROCESSES",
    "RAY",
    "SOURCE",
    "Front",
    "check_refusals",
    "each_kind",
    "own_ray",
    "pids",
    "remote",
    "values",
]

T = TypeVar("T")
WAIT_S = 90.0
HERE, PROCESSES, RAY = KINDS = ("here", "processes", "ray")
MOST_WAITING = 8
# Ray itself leaves a socket open now and then
MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
remote = pytest.mark.parametrize("kind", [PROCESSES, RAY], indirect=True, scope="module")  # whose replicas die alone
NAME = "Worded"
SOURCE = '''
import os
import time

import numpy as np

from twoshift.errors import TryLater


class Worded:
    """Texts to numbers. A text may ask for trouble."""

    outputs = ("value", "pid")
    example = "a"
    max_row_tokens = 50

    def load(self):
        pass

    def prepare(self, rows):
        texts = np.empty(len(rows), object)
        texts[:] = [row["text"] if isinstance(row, dict) else row for row in rows]
        return {"text": texts}

    def predict(self, batch):
        for text in batch["text"]:
            word, _, gate = text.partition(" ")
            if word == "raise":
                raise ArithmeticError("this text is bad")
            if word == "full":
                raise TryLater("full, says the model", 6.5)
            if word == "wait":  # until the file is there; who waits leaves its number beside it
                open(f"{gate}.{os.getpid()}", "w").close()
                while not os.path.exists(gate):
                    time.sleep(0.005)
        value = [np.sin(np.frombuffer(text.encode(), "uint8").astype("float32")).sum() for text in batch["text"]]
        return {"value": np.array(value, "float32"), "pid": np.full(len(value), os.getpid())}
'''


class Front:
    """A backend and the loop that serves it, in a thread of its own."""

    def __init__(self, kind: str, backend: Any) -> None:
        self.kind, self.backend = kind, backend
        self.service = Service(Deployments({backend.name: backend}))
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.call(self.service.start)

    @property
    def replicas(self) -> int:
        """Of the front that tests share."""
        return 1 if self.kind == HERE else 2

    def call(self, what: Callable[[], None]) -> None:
        """On the loop."""
        self.run(_called(what))

    def run(self, what: Awaitable[T]) -> T:
        """To its end, on the loop."""
        return asyncio.run_coroutine_threadsafe(_awaited(what), self.loop).result(WAIT_S)

    def ask(self, rows: Sequence[str], timeout_s: float = 60.0) -> Future[Answer]:
        """A live request, under way."""
        deployment = self.service.find(self.backend.name)
        return asyncio.run_coroutine_threadsafe(
            self.service.answer(deployment, rows, timeout_s, time.monotonic()), self.loop
        )

    def hold(self, folder: Path, count: int) -> tuple[list[Future[Answer]], list[int], Callable[[], None]]:
        """Calls on the devices of so many replicas; who has them, and how they are ended."""
        asked, gates, held = list[Future[Answer]](), list[Path](), list[int]()
        for number in range(count):
            gates.append(folder / f"gate-{number}")
            asked.append(self._begun(gates[-1]))
            held += [int(each.suffix[1:]) for each in folder.glob(f"{gates[-1].name}.*")]

        def release() -> None:
            for gate in gates:
                gate.touch()

        return asked, held, release

    def _begun(self, gate: Path) -> Future[Answer]:
        """Asked again where it waits behind another: a replica that was slow before is not chosen at once."""
        while True:
            asked, until_s = self.ask([f"wait {gate}"]), time.monotonic() + 1.0
            while time.monotonic() < until_s:
                if any(gate.parent.glob(f"{gate.name}.*")):
                    return asked
                time.sleep(0.01)
            asked.cancel()

    def lane_replicas(self) -> Sequence[Any]:
        """Those in whose batch lanes jobs may run."""
        return [EngineReplica(self.backend.engine)] if self.kind == HERE else self.backend.lane_replicas()

    def run_job(self, settings: JobSettings, report: Callable[[], None] = lambda: None) -> JobOnFleet:
        """In its batch lanes, to its end, with a report now and then; until they have told of all its rows."""
        seats = self.lane_replicas()
        lane = JobOnFleet(settings, LiveFleet(lambda: seats, list))

        def tick(_now: Any) -> None:
            lane.tick()
            report()

        job = Job(settings, blobs_for, EnginePool(settings, lane, blobs_for), lane)
        assert job.run(lambda _: None, tick).ending is Ending.DONE
        return lane

    def close(self) -> None:
        """The backend and its loop."""
        self.backend.close()
        self.run(_all_cancelled())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def own_ray() -> Iterator[None]:
    """A fixture: a Ray of this process, to which every backend of a module connects."""
    ray = pytest.importorskip("ray", reason="the ray extra is not installed")
    pytest.importorskip("ray.serve", reason="the ray extra is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Replicas open what tests have made
        patch.setenv("PYTHONPATH", python_path(str(Path(__file__).parent), lean=False))
        store = {"object_store_memory": 80 << 20, "include_dashboard": False}
        ray.init(address="local", num_cpus=4, log_to_driver=False, logging_level="ERROR", **store)
        yield
        ray.serve.shutdown()
        ray.shutdown()
        gc.collect()  # what Ray left open is told here, and not in the next module


def each_kind(request: pytest.FixtureRequest) -> str:
    """A fixture: the kind of the backend; with Ray running where it is that."""
    if request.param == RAY:
        request.getfixturevalue("ray_here")
    return request.param


def check_refusals(asked: Sequence[Future[Any]]) -> None:
    """Of requests that came at once some are refused, each with a time, and as many as can wait are not."""
    refused = [error for each in asked if (error := each.exception()) is not None]
    assert len(refused) >= 8
    assert all(isinstance(error, TryLater) and error.retry_after_s > 0 for error in refused)
    assert len(asked) - len(refused) >= MOST_WAITING


def values(answer: Answer) -> list[float]:
    """Of its rows."""
    return [float(row["value"]) for row in answer.rows]


def pids(answer: Answer) -> set[int]:
    """Of who has answered."""
    return {int(row["pid"]) for row in answer.rows}


async def _awaited(what: Awaitable[T]) -> T:
    return await what


async def _called(what: Callable[[], None]) -> None:
    what()


async def _all_cancelled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop: Any = asyncio.get_running_loop()
    for transport in [*loop._transports.values()]:  # of replicas whose end was not told before the loop's
        transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the connections are closed in the next turn of the loop
