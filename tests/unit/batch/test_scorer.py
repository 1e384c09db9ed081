"""Shards through a real engine: order, errors, types, giving up, and who publishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.inputs import Target, cut, kept_schema, resolve
from twoshift.batch.part import output_schema
from twoshift.batch.plan import Plan, PlannedModel, part_location
from twoshift.batch.scorer import ShardScorer, Stopped
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.engine import Engine
from twoshift.errors import Broken
from twoshift.policy.cost import CallCost
from twoshift.policy.lanes import LaneLimits
from twoshift.wiring import load_model

BLOBS = LocalBlobs()
MODEL = """
import time
import numpy as np

class Model:
    def load(self): pass
    def prepare(self, rows):
        if any(row["x"] < 0 for row in rows): raise ValueError("negative")
        return {{"x": np.array([row["x"] for row in rows])}}
    def predict(self, batch):
        x = batch["x"]
        return {answer}
"""


def blobs_for(_: str) -> LocalBlobs:
    return BLOBS


class Bench:
    """A plan over some rows and scorers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engines = folder, list[Engine]()

    def plan(self, values: list[float], results: dict[str, pa.DataType], shard_rows: int = 10_000) -> Plan:
        table = pa.table({"id": range(len(values)), "x": pa.array(values, pa.float64())})
        pq.write_table(table, self.folder / "in.parquet")
        settings = JobSettings(
            inputs=(str(self.folder / "in.parquet"),),
            output=str(self.folder / "out"),
            model="m",
            columns=("x",),
            keep=("id",),
        )
        files = tuple(resolve(settings.inputs, blobs_for))
        shards = cut(files, blobs_for, Target(rows=shard_rows))
        schema = output_schema(kept_schema(files, blobs_for, ("id",)), results)
        return Plan.make(settings, PlannedModel("m", "", "fp32", ()), files, shards, schema, 0.001)

    def scorer(self, plan: Plan, answer: str) -> ShardScorer:
        (self.folder / "m.py").write_text(MODEL.format(answer=answer))
        runtime = load_model(f"{self.folder / 'm.py'}:Model")
        self.engines.append(Engine(runtime, CallCost.line(0.0, 1e-5), LaneLimits(max_rows=256)))
        return ShardScorer(self.engines[-1], plan, blobs_for, "here")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for engine in bench.engines:
        engine.close()


def score(scorer: ShardScorer, shard: int = 0, progress: Callable[[int], None] = lambda _: None) -> Any:
    return scorer.score(shard, threading.Event(), lambda: None, progress)


def rows(plan: Plan, shard: int = 0) -> list[dict[str, Any]]:
    return pq.read_table(part_location(plan, shard)).to_pylist()


def test_rows_come_back_in_order_whatever_window_they_were_in(bench: Bench) -> None:
    plan = bench.plan([float(k) for k in range(10_000)], {"y": pa.float64()})
    seen: list[int] = []
    stats, published = score(bench.scorer(plan, '{"y": 2 * x}'), progress=seen.append)
    assert published
    assert (stats.rows, stats.errors, sum(seen)) == (10_000, 0, 10_000)
    assert rows(plan) == [{"id": k, "y": 2.0 * k, "error": None} for k in range(10_000)]


def test_the_first_commit_wins_and_the_late_one_changes_nothing(bench: Bench) -> None:
    plan = bench.plan([1.0, 2.0], {"y": pa.float64()})
    first, late = bench.scorer(plan, '{"y": x}'), bench.scorer(plan, '{"y": -x}')
    assert score(first)[1]
    before = Path(part_location(plan, 0)).stat()
    stats, published = score(late)
    assert not published
    assert stats.rows == 2
    assert Path(part_location(plan, 0)).stat() == before or rows(plan)[0]["y"] == 1.0
    assert list((bench.folder / "out" / "_twoshift" / "staging").iterdir()) == []


def test_rows_that_fail_leave_the_others_whole_whatever_type_each_block_has(bench: Bench) -> None:
    plan = bench.plan([1.0, -1.0, 1000.0, 5.0], {"y": pa.string()})
    stats, _ = score(bench.scorer(plan, '{"y": np.array([f"{v:.0f}" for v in x])}'))
    assert [row["y"] for row in rows(plan)] == ["1", None, "1000", "5"]
    assert stats.errors == 1
    assert "negative" in rows(plan)[1]["error"]


def test_numbers_are_not_cut_to_the_type_of_the_first_block(bench: Bench) -> None:
    plan = bench.plan([1.0, -1.0, 2.5], {"y": pa.float64()})
    answer = '{"y": x.astype(np.int64) if (x % 1 == 0).all() else x}'
    score(bench.scorer(plan, answer))
    assert [row["y"] for row in rows(plan)] == [1.0, None, 2.5]


def test_an_answer_of_another_type_than_planned_is_named(bench: Bench) -> None:
    plan = bench.plan([0.5], {"y": pa.int64()})
    with pytest.raises(Broken, match=r"column y is double here; expected int64"):
        score(bench.scorer(plan, '{"y": x}'))
    assert not Path(part_location(plan, 0)).exists()


def test_a_column_that_was_not_planned_is_not_dropped_in_silence(bench: Bench) -> None:
    plan = bench.plan([0.5], {"y": pa.float64()})
    with pytest.raises(Broken, match="answers with z"):
        score(bench.scorer(plan, '{"y": x, "z": x}'))


def test_a_shard_that_is_given_up_leaves_nothing_and_frees_the_device(bench: Bench) -> None:
    plan = bench.plan([float(k) for k in range(4000)], {"y": pa.float64()})
    scorer, stop = bench.scorer(plan, '[time.sleep(0.3), {"y": x}][1]'), threading.Event()
    threading.Timer(0.5, stop.set).start()
    began_s = time.monotonic()
    with pytest.raises(Stopped):
        scorer.score(0, stop, lambda: None, lambda _: None)
    assert not Path(part_location(plan, 0)).exists()
    assert list((bench.folder / "out" / "_twoshift" / "staging").iterdir()) == []
    time.sleep(0.5)
    calls = bench.engines[0].stats().calls
    time.sleep(1.0)
    assert bench.engines[0].stats().calls <= calls + 1  # not all 16 that were queued
    assert time.monotonic() - began_s < 5


def test_shards_cover_the_input_exactly_once(bench: Bench) -> None:
    plan = bench.plan([float(k) for k in range(1000)], {"y": pa.float64()}, shard_rows=64)
    scorer = bench.scorer(plan, '{"y": x}')
    for shard in reversed(range(len(plan.shards))):
        score(scorer, shard)
    ids = [row["id"] for shard in range(len(plan.shards)) for row in rows(plan, shard)]
    assert ids == list(range(1000))
    assert np.isfinite(score(scorer, 0)[0].seconds)
