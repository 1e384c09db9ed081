"""What Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.engine.llm import FinishedSequence
from twoshift.generation import FinishReason, TokenUsage
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.counts import MetricCounts
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.llm.metrics import LlmMetrics
from twoshift.serve.model import ServedModel
from twoshift.serve.stages import Stages
from twoshift.types import Lane

pytest.importorskip("prometheus_client")
COST, LIMITS = CallCost.line(0.001, 1e-5), LaneLimits(slo_s=600.0)


class Same:
    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return columns


@pytest.fixture
def model() -> Iterator[ServedModel]:
    engine = Engine(HostModel(RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, ()), Same()), COST, LIMITS)
    made = ServedModel("m", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 10))
    yield made
    made.close()


def read(model: ServedModel | Deployments) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    models = model if isinstance(model, Deployments) else Deployments({"m": model})
    page, _ = ServerMetrics(models, {"http_connections": ("Open connections.", lambda: 7)}).text()
    families = text_string_to_metric_families(page.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def of(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return found[(name, frozenset(labels.items()))]


def test_what_was_answered_is_counted_by_model_and_lane(model: ServedModel) -> None:
    rows = model.engine.runtime.prepare([{"x": 1.0}, {"x": 2.0}])
    for future in model.engine.submit(rows, model.engine.now_s() + 10):
        future.result()
    model.engine.submit_block(rows).result()
    found = read(model)
    assert of(found, "twoshift_http_connections") == 7
    assert of(found, "twoshift_rows_total", model="m", lane="online") == 2
    assert of(found, "twoshift_rows_total", model="m", lane="batch") == 2
    assert of(found, "twoshift_call_rows_sum", model="m", lane="online") == 2
    assert of(found, "twoshift_call_rows_bucket", model="m", lane="batch", le="2") == 1
    assert of(found, "twoshift_call_rows_bucket", model="m", lane="batch", le="1") == 0
    assert of(found, "twoshift_calls_total", model="m") == 2
    assert of(found, "twoshift_waiting_rows", model="m", lane="online") == 0
    assert of(found, "twoshift_healthy", model="m") == 1


def test_what_live_rows_took_is_counted_by_what_ran_beside_them(model: ServedModel) -> None:
    rows = model.engine.runtime.prepare([{"x": 1.0}])
    model.engine.submit(rows, model.engine.now_s() + 10)[0].result()
    alone = read(model)
    assert of(alone, "twoshift_live_rows_total", model="m", beside="nothing") == 1
    assert of(alone, "twoshift_live_seconds_total", model="m", beside="nothing") > 0
    assert of(alone, "twoshift_live_rows_total", model="m", beside="batch") == 0
    block, asked, beside = model.engine.runtime.prepare([{"x": 1.0}] * 100_000), 1, alone
    # a quick machine may have done with the job first
    while not of(beside, "twoshift_live_rows_total", model="m", beside="batch"):
        job = model.engine.submit_block(block)
        model.engine.submit(rows, model.engine.now_s() + 10)[0].result()
        job.cancel()
        asked, beside = asked + 1, read(model)
    met = of(beside, "twoshift_live_rows_total", model="m", beside="batch")
    assert of(beside, "twoshift_live_rows_total", model="m", beside="nothing") + met == asked
    assert of(beside, "twoshift_live_seconds_total", model="m", beside="batch") > 0


def test_stages_replies_and_refusals_are_histograms_and_counters(model: ServedModel) -> None:
    models = Deployments({"m": model})
    metrics = models["m"].metrics
    metrics.answered(Stages(admit=0.0002, lookup=0.0, prepare=0.002, queue=0.03, forward=0.2, finish=20.0))
    metrics.replied(200, 0.3, None)
    metrics.replied(503, 0.001, "overloaded")
    found = read(models)
    prepared = {"model": "m", "lane": "online", "stage": "prepare"}
    assert of(found, "twoshift_stage_seconds_bucket", **prepared, le="0.001") == 0
    assert of(found, "twoshift_stage_seconds_bucket", **prepared, le="0.0025") == 1
    finished = {"model": "m", "lane": "online", "stage": "finish"}
    assert of(found, "twoshift_stage_seconds_bucket", **finished, le="10.0") == 0
    assert of(found, "twoshift_stage_seconds_bucket", **finished, le="+Inf") == 1
    assert of(found, "twoshift_stage_seconds_sum", **finished) == 20.0
    assert of(found, "twoshift_requests_total", model="m", lane="online", status="503") == 1
    assert of(found, "twoshift_refusals_total", model="m", lane="online", reason="overloaded") == 1
    assert of(found, "twoshift_request_seconds_count", model="m", lane="online") == 2


def test_requests_are_counted_by_whether_the_objective_was_met(model: ServedModel) -> None:
    models = Deployments({"m": model})
    metrics = models["m"].metrics
    # Too late, refused and failed are outside; what the client did wrong, or did not wait for, is neither
    for status, seconds in ((200, 599), (200, 600), (200, 601), (503, 0.001), (504, 600), (500, 0.1), (400, 0.1),
                            (429, 0.001), (499, 9.0)):  # fmt: skip
        metrics.replied(status, seconds, None)
    metrics.elsewhere = MetricCounts(within_slo=10, outside_slo=20)
    found = read(models)
    assert of(found, "twoshift_slo_requests_total", model="m", slo="within") == 12
    assert of(found, "twoshift_slo_requests_total", model="m", slo="outside") == 24
    assert of(found, "twoshift_objective_seconds", model="m", of="request") == 600


def test_a_sequence_is_within_the_objective_if_its_first_token_and_its_pace_are() -> None:
    metrics = LlmMetrics()
    metrics.objective = 1.0, 0.1

    def ended(lane: Lane, ttft_s: float, seconds: float, tokens: int) -> None:
        usage = TokenUsage(prompt_tokens=3, completion_tokens=tokens)
        metrics.finished(FinishedSequence(lane, FinishReason.STOP, usage, 9.0, ttft_s, seconds))

    ended(Lane.ONLINE, 0.9, 1.8, 11)
    ended(Lane.ONLINE, 0.9, 0.9, 1)
    ended(Lane.ONLINE, 1.1, 1.2, 11)
    ended(Lane.ONLINE, 0.9, 3.0, 11)
    ended(Lane.BATCH, 9.0, 90.0, 11)
    assert metrics.slo_counts() == (2, 2)


def test_rows_that_wait_are_seen_by_lane_with_the_oldest_age(model: ServedModel) -> None:
    engine = Engine(model.engine.runtime, COST, LIMITS, start=False)
    rows = engine.runtime.prepare([{"x": 1.0}, {"x": 2.0}, {"x": 3.0}])
    engine.submit(rows, engine.now_s() + 10)
    engine.submit_block(rows)
    time.sleep(0.01)
    waiting = engine.waiting()
    assert {str(lane): queue.rows for lane, queue in waiting.items()} == {"online": 3, "micro": 0, "batch": 3}
    assert min(waiting[lane].oldest_s for lane in waiting if waiting[lane].rows) >= 0.01


def test_what_others_count_is_on_the_same_page(model: ServedModel) -> None:
    def more() -> list[tuple[str, str, str, tuple[str, ...], list[tuple[Any, ...]]]]:
        return [("counter", "scale_decisions", "Decisions.", ("model", "direction"), [("m", "up", 3)])]

    page, _ = ServerMetrics(Deployments({"m": model}), {}, [more]).text()
    assert b'twoshift_scale_decisions_total{direction="up",model="m"} 3.0' in page
