"""Streams at a replica that serves: after live requests, before jobs."""

from __future__ import annotations

import queue
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streaming import Streaming
from user_models import square

from twoshift.batch.job_seats import EngineReplica
from twoshift.engine import Engine
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.streams.stream_worker import StopStream, StreamEnded, StreamTask
from twoshift.types import Lane
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.model_loading import load_model
from waiting import until

GATED = """import stream_gate as gate
        gate.entered.set()
        gate.may_run.wait(60)
        gate.order.extend(x.tolist())"""


class Gate(types.ModuleType):
    """What the model passes: the device is busy while it is shut."""

    def __init__(self) -> None:
        super().__init__("stream_gate")
        self.entered, self.may_run = threading.Event(), threading.Event()
        self.order = list[float]()
        self.may_run.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setitem(sys.modules, "stream_gate", made)
    yield made
    made.may_run.set()


@pytest.fixture
def streaming(tmp_path: Path) -> Streaming:
    made = Streaming(tmp_path)
    (tmp_path / "m.py").write_text(square(GATED))
    return made


@pytest.fixture
def engine(streaming: Streaming, gate: Gate) -> Iterator[Engine]:
    limits = LaneLimits(max_rows=1, slo_s=60.0)  # a row a call: the order of calls is that of rows
    with Engine(load_model(f"{streaming.path}/m.py:Square"), CallCost.line(1e-4, 1e-5), limits) as made:
        yield made


def begun(streaming: Streaming, engine: Engine, **more: Any) -> tuple[Any, queue.SimpleQueue[Any]]:
    settings, job = streaming.settings(fresh=1.0, **more)
    heard = queue.SimpleQueue[Any]()
    seat = EngineReplica(engine).place(1.0, Lane.MICRO)
    return seat.work(StreamTask(settings, job, blobs_for), "stream", heard.put), heard


def ended(heard: queue.SimpleQueue[Any]) -> StreamEnded:
    while not isinstance(found := heard.get(timeout=60), StreamEnded):
        pass
    return found


def test_a_streams_rows_run_after_live_rows_and_before_those_of_jobs(
    streaming: Streaming, engine: Engine, gate: Gate
) -> None:
    streaming.put("a.jsonl", range(3))
    worker, heard = begun(streaming, engine, once=False)
    until(lambda: len(streaming.parts()) == 1)
    gate.entered.clear()
    gate.may_run.clear()
    job = BlockOwner(7)
    prepared = engine.runtime.prepare([{"x": float(x)} for x in range(100, 104)])
    begun_job = engine.submit_block(prepared.slice(0, 1), owner=job)
    gate.entered.wait(60)  # the device is busy with a job's row
    gate.order.clear()
    rest_of_job = engine.submit_block(prepared.slice(1, 4), owner=job)
    streaming.put("b.jsonl", range(200, 203))
    until(lambda: engine.waiting()[Lane.MICRO].rows == 3)
    live = engine.submit(engine.runtime.prepare([{"x": 300.0}]), engine.now_s() + 60.0)
    gate.may_run.set()
    for each in (begun_job, rest_of_job):
        each.result()
    until(lambda: len(streaming.parts()) == 2)
    assert gate.order == [100.0, 300.0, 200.0, 201.0, 202.0, 101.0, 102.0, 103.0]
    assert [each.result() for each in live]
    worker.tell(StopStream())
    assert ended(heard) == StreamEnded(None, was_stopped=True)
    assert streaming.ids() == [0, 1, 2, 200, 201, 202]


def test_a_stream_that_is_told_to_give_up_leaves_its_window_to_the_next_one(
    streaming: Streaming, engine: Engine, gate: Gate
) -> None:
    streaming.put("a.jsonl", range(3))
    worker, heard = begun(streaming, engine)
    assert ended(heard).error is None
    worker, heard = begun(streaming, engine, once=False)
    gate.may_run.clear()
    streaming.put("b.jsonl", range(3, 9))
    until(lambda: engine.waiting()[Lane.MICRO].rows > 0)
    worker.tell(None)
    assert ended(heard).was_stopped
    gate.may_run.set()
    assert streaming.ids() == [0, 1, 2]
    assert ended(begun(streaming, engine)[1]) == StreamEnded(None, was_stopped=False)
    streaming.check_squares(9)


def test_what_a_stream_fails_with_is_told(streaming: Streaming, engine: Engine) -> None:
    streaming.put("a.jsonl", range(3))
    error = ended(begun(streaming, engine, columns=["y"])[1]).error
    assert isinstance(error, InvalidInput)
    assert "y" in str(error)
