"""What is read of a model that is served."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from own_service import doubling_service

from twoshift.engine.llm import LlmLane, LlmStats
from twoshift.engine.stats import Queue
from twoshift.errors import TryLater
from twoshift.fleet.observer import Backlog
from twoshift.fleet.scaling import model_counts, signals
from twoshift.policy.replica_signals import read_levels
from twoshift.types import Lane
from waiting import until_async


def test_rows_offered_and_refused_are_counted_and_hopeless_ones_blame_nobody() -> None:
    async def asked() -> None:
        service.start()
        now_s = time.monotonic()
        await service.answer(model, [{"x": 1.0}, {"x": 2.0}], None, now_s)
        gated.gate.clear()
        waiting = [
            asyncio.ensure_future(service.answer(model, [{"x": 1.0}] * 60, None, time.monotonic())) for _ in range(2)
        ]
        await until_async(lambda: model.metrics.offered_rows == 2 + 2 * 60)
        with pytest.raises(TryLater):
            await service.answer(model, [{"x": 1.0}] * 60, None, time.monotonic())
        refused = model.metrics.refused_rows
        with pytest.raises(Exception, match=r"."):
            await service.answer(model, [{"x": 1.0}] * 4, 1e-9, time.monotonic())
        assert model.metrics.refused_rows == refused
        gated.gate.set()
        await asyncio.gather(*waiting, return_exceptions=True)

    with doubling_service() as (service, gated):
        model = service.models["m"]
        asyncio.run(asked())
        counts = model_counts(model, model.metrics.offered_rows, model.metrics.refused_rows)
        assert counts.offered_rows == 2 + 3 * 60 + 4
        assert counts.refused_rows >= 60
        assert counts.rows_per_s_since(None) == pytest.approx(model.derived_now().capacity_rows_per_s)


def test_the_signals_for_autoscalers_outside_are_there_without_one_here() -> None:
    with doubling_service() as (service, _):
        jobs = [Backlog(100, 50.0), Backlog(1000, math.inf)]
        found = {name: samples for _, name, _, _, samples in signals(service.models, lambda _: jobs)}
    assert found["job_rows_left"] == [("m", 1100)]
    assert found["urgent_rows_left"] == [("m", 100)]
    assert found["urgent_seconds_left"] == [("m", 50.0)]
    assert found["replica_rows_per_second"][0][1] > 0


class Llm:
    """What is read of a language model."""

    def waiting(self) -> dict[Lane, Queue]:
        return {Lane.ONLINE: Queue(7, 0.5), Lane.BATCH: Queue(100, 60.0)}

    def sequences(self) -> LlmStats:
        return LlmStats(lanes={lane: LlmLane() for lane in Lane}, kv_use=0.9, live_kv_use=0.6)


def test_waiting_sequences_and_what_live_ones_hold_of_the_kv_cache_are_read_of_a_language_model() -> None:
    assert read_levels(Llm()) == {"waiting": 7, "oldest_wait_s": 0.5, "kv_saturation": 0.6, "cold_start_s": 0.0}


def test_a_model_without_sequences_holds_no_kv_cache() -> None:
    with doubling_service() as (service, _):
        assert read_levels(service.models["m"].backend)["kv_saturation"] == 0
