"""Shards through a real engine: order, errors, types, giving up, and who publishes."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.inputs import ShardTarget, cut, kept_schema, resolve
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location, plan_location
from twoshift.batch.result_columns import output_schema
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.settings import JobSettings
from twoshift.batch.table_rows import model_rows, readable_rows
from twoshift.batch.windows import Stopped
from twoshift.blobs.local import LocalBlobs
from twoshift.engine import Engine
from twoshift.errors import Broken, InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.wiring.model_loading import load_model

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
TEXT_MODEL = """
import numpy as np

class Model:
    def load(self): pass
    def prepare(self, rows): return {{"text": np.array([str(row) for row in rows], object)}}
    def predict(self, batch):
        return {{"y": np.array(batch["text"].tolist())}}
"""
BROKEN_UTF8 = pa.array([b"good", b"\xff\xfe", None, "größer".encode(), b"cut \xc3"], pa.binary())


def blobs_for(_: str) -> LocalBlobs:
    return BLOBS


class Bench:
    """A plan over some rows and scorers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engines = folder, list[Engine]()

    def plan(self, values: list[float], results: dict[str, pa.DataType], shard_rows: int = 10_000) -> Plan:
        table = pa.table({"id": range(len(values)), "x": pa.array(values, pa.float64())})
        pq.write_table(table, self.folder / "in.parquet")
        return self.made(results, shard_rows, columns=("x",))

    def made(self, results: dict[str, pa.DataType], shard_rows: int = 10_000, **options: Any) -> Plan:
        """The plan over what lies there as in.parquet."""
        settings = JobSettings(
            inputs=(str(self.folder / "in.parquet"),),
            output=str(self.folder / "out"),
            model="m",
            keep=("id",),
            **options,
        )
        files = tuple(resolve(settings.inputs, blobs_for))
        shards = cut(files, blobs_for, ShardTarget(rows=shard_rows))
        schema = output_schema(kept_schema(files, blobs_for, ("id",)), results)
        return Plan.make(settings, PlannedModel("m", "", "fp32", ()), files, shards, schema, RowFigures(0.001))

    def text_plan(self, columns: dict[str, pa.Array], **options: Any) -> Plan:
        """A plan over columns of texts, answered with y."""
        rows = len(next(iter(columns.values())))
        pq.write_table(pa.table({"id": range(rows), **columns}), self.folder / "in.parquet")
        return self.made({"y": pa.string()}, **options)

    def scorer(
        self, plan: Plan, answer: str, model: str = MODEL, blobs_for: Callable[[str], LocalBlobs] = blobs_for
    ) -> ShardScorer:
        (self.folder / "m.py").write_text(model.format(answer=answer))
        runtime = load_model(f"{self.folder / 'm.py'}:Model")
        self.engines.append(Engine(runtime, CallCost.line(0.0, 1e-5), LaneLimits(max_rows=256)))
        return ShardScorer(self.engines[-1], plan, blobs_for, "here")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for engine in bench.engines:
        engine.close()


def score(scorer: ShardScorer, shard: int = 0) -> Any:
    return scorer.score(shard, threading.Event(), lambda: None)


def rows(plan: Plan, shard: int = 0) -> list[dict[str, Any]]:
    return pq.read_table(part_location(plan, shard)).to_pylist()


def test_rows_come_back_in_order_whatever_window_they_were_in(bench: Bench) -> None:
    plan = bench.plan([float(k) for k in range(10_000)], {"y": pa.float64()})
    stats, published = score(bench.scorer(plan, '{"y": 2 * x}'))
    assert published
    assert (stats.rows, stats.errors) == (10_000, 0)
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


def test_a_process_of_a_job_that_was_deleted_writes_nothing_into_the_one_that_has_its_folder_now(bench: Bench) -> None:
    plan = bench.plan([1.0, 2.0], {"y": pa.float64()}, shard_rows=1)
    frozen = Path(plan_location(plan.settings.output))
    frozen.parent.mkdir(parents=True)
    frozen.write_text("of the first job")
    scorer = bench.scorer(plan, '{"y": x}')
    assert score(scorer, 0)[1]
    shutil.rmtree(bench.folder / "out")
    with pytest.raises(Broken, match="out was deleted or replaced"):
        score(scorer, 1)
    assert not (bench.folder / "out").exists()
    frozen.parent.mkdir(parents=True)
    frozen.write_text("of the second job, which has begun here")
    with pytest.raises(Broken, match="out was deleted or replaced"):
        score(scorer, 1)
    assert not Path(part_location(plan, 1)).exists()


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
    with pytest.raises(Broken, match=r"column y has the type double; expected int64"):
        score(bench.scorer(plan, '{"y": x}'))
    assert not Path(part_location(plan, 0)).exists()


def test_a_column_that_was_not_planned_is_not_dropped_in_silence(bench: Bench) -> None:
    plan = bench.plan([0.5], {"y": pa.float64()})
    with pytest.raises(Broken, match="returned the column z"):
        score(bench.scorer(plan, '{"y": x, "z": x}'))


def test_a_shard_that_is_given_up_leaves_nothing_and_frees_the_device(bench: Bench) -> None:
    plan = bench.plan([float(k) for k in range(4000)], {"y": pa.float64()})
    scorer, stop = bench.scorer(plan, '[time.sleep(0.3), {"y": x}][1]'), threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Stopped):
        scorer.score(0, stop, lambda: None)
    assert not Path(part_location(plan, 0)).exists()
    assert list((bench.folder / "out" / "_twoshift" / "staging").iterdir()) == []
    engine = bench.engines[0]
    while any(queue.rows for queue in engine.waiting().values()):
        time.sleep(0.01)
    assert engine.stats().calls < 16  # those that were queued never run


def test_shards_cover_the_input_exactly_once(bench: Bench) -> None:
    plan = bench.plan([float(k) for k in range(1000)], {"y": pa.float64()}, shard_rows=64)
    scorer = bench.scorer(plan, '{"y": x}')
    for shard in reversed(range(len(plan.shards))):
        score(scorer, shard)
    ids = [row["id"] for shard in range(len(plan.shards)) for row in rows(plan, shard)]
    assert ids == list(range(1000))
    assert np.isfinite(score(scorer, 0)[0].seconds)


def test_an_error_names_its_row_as_the_file_counts_it(bench: Bench) -> None:
    plan = bench.plan([-1.0 if k in (130, 199) else float(k) for k in range(200)], {"y": pa.float64()}, shard_rows=64)
    scorer = bench.scorer(plan, '{"y": x}')
    for shard in range(len(plan.shards)):
        score(scorer, shard)
    found = {row["id"]: row["error"] for shard in range(len(plan.shards)) for row in rows(plan, shard) if row["error"]}
    assert set(found) == {130, 199}
    for k, error in found.items():
        assert error.startswith(f"{bench.folder}/in.parquet, row {k + 1}: {{'x': -1.0}} cannot be used")


@pytest.mark.parametrize("output_format", ["jsonl", "parquet"])
def test_a_number_that_json_does_not_have_is_told_and_counted(bench: Bench, output_format: str) -> None:
    answer = '{"y": np.where(x == 1, np.nan, x), "z": x}'
    pq.write_table(pa.table({"id": [0, 1, 2], "x": [0.0, 1.0, 2.0]}), bench.folder / "in.parquet")
    plan = bench.made({"y": pa.float64(), "z": pa.float64()}, columns=("x",), output_format=output_format)
    stats, _ = score(bench.scorer(plan, answer))
    if output_format == "parquet":
        assert np.isnan(rows(plan)[1]["y"])
        assert (stats.errors, rows(plan)[1]["error"]) == (0, None)
        return
    lines = [json.loads(line) for line in Path(part_location(plan, 0)).read_text().splitlines()]
    assert [line["error"] is None for line in lines] == [True, False, True]
    assert "in.parquet, row 2: y is NaN or infinite" in lines[1]["error"]
    assert (lines[1]["y"], lines[1]["z"]) == (None, 1.0)
    assert (stats.errors, stats.kinds) == (1, {"not finite": 1})


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_text_of_bytes_that_are_not_utf8_is_an_error_of_its_row_alone(bench: Bench, kind: pa.DataType) -> None:
    plan = bench.text_plan({"body": BROKEN_UTF8.cast(kind)}, text="body")
    stats, published = score(bench.scorer(plan, "", TEXT_MODEL))
    assert published
    assert [row["y"] for row in rows(plan)] == ["good", None, None, "größer", None]
    assert [row["error"] and row["error"].partition(": ")[2] for row in rows(plan)] == [
        None,
        r"column body: b'\xff\xfe' is invalid UTF-8",
        "the text is null",
        None,
        r"column body: b'cut \xc3' is invalid UTF-8",
    ]
    assert stats.kinds == {"unreadable": 2, "null": 1}


def test_either_text_of_a_pair_may_be_unreadable(bench: Bench) -> None:
    plan = bench.text_plan({"q": BROKEN_UTF8, "d": BROKEN_UTF8[::-1]}, text="q", pair="d")
    stats, _ = score(bench.scorer(plan, "", TEXT_MODEL))
    errors = [row["error"] for row in rows(plan)]
    assert [row["y"] is None for row in rows(plan)] == [True] * 5
    path = f"{bench.folder}/in.parquet, row"
    for row, what in enumerate(["column d", "column q", "the text", "column d", "column q"]):
        assert errors[row].startswith(f"{path} {row + 1}: {what}")
    assert stats.kinds == {"unreadable": 4, "null": 1}


def test_a_text_that_cannot_be_read_is_none_and_no_sample() -> None:
    batch = pa.RecordBatch.from_arrays([BROKEN_UTF8, BROKEN_UTF8], ["a", "b"])
    settings = JobSettings(inputs=("i",), output="o", model="m", text="a")
    assert model_rows(batch, settings) == ["good", None, None, "größer", None]
    assert readable_rows(batch, settings) == {0: "good", 2: None, 3: "größer"}
    told = batch.append_column("__error__", pa.array(["no row", None, None, None, None]))
    assert readable_rows(told, settings) == {2: None, 3: "größer"}


@pytest.mark.parametrize(
    "column",
    [pa.array([["a"]]), pa.array([{"x": 1}]), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))],
    ids=["list", "struct", "map"],
)
@pytest.mark.parametrize("option", ["text", "pair"])
def test_a_column_that_can_never_be_text_is_refused_with_its_type(option: str, column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), column], ["good", "tags"])
    options: dict[str, Any] = {"text": "good", option: "tags"}
    settings = JobSettings(inputs=("i",), output="o", model="m", **options)
    with pytest.raises(InvalidInput, match=rf"^{option}: 'tags' .*a text column; tags has the type (list|struct|map)<"):
        model_rows(batch, settings)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([7]), "7"),
        (pa.array([1.0]), "1"),
        (pa.array([True]), "true"),
        (pa.array([datetime.date(2024, 1, 2)]), "2024-01-02"),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.nulls(1), None),
    ],
)
def test_what_is_no_text_but_can_be_one_is_scored_as_it_is_written(column: pa.Array, text: str | None) -> None:
    settings = JobSettings(inputs=("i",), output="o", model="m", text="a")
    assert model_rows(pa.RecordBatch.from_arrays([column], ["a"]), settings) == [text]


def test_times_of_an_unknown_zone_are_errors_of_their_rows(bench: Bench) -> None:
    plan = bench.text_plan({"when": pa.array([0], pa.timestamp("us", "Nowhere/Else"))}, text="when")
    stats, _ = score(bench.scorer(plan, "", TEXT_MODEL))
    assert rows(plan)[0]["error"] == f"{bench.folder}/in.parquet, row 1: column when: a value is not text"
    assert stats.kinds == {"unreadable": 1}


def test_an_input_that_was_replaced_before_its_shard_is_read_is_not_scored(bench: Bench) -> None:
    plan = bench.plan([1.0, 2.0], {"y": pa.float64()})
    scorer = bench.scorer(plan, '{"y": x}')
    bench.plan([3.0, 4.0], {"y": pa.float64()})
    with pytest.raises(Broken, match=r"in\.parquet has changed"):
        score(scorer)
    assert not Path(part_location(plan, 0)).exists()


def test_a_shard_whose_input_is_replaced_while_it_is_read_is_not_published(bench: Bench) -> None:
    class ReplacedBlobs(LocalBlobs):
        def open(self, location: str) -> Any:
            handle = super().open(location)
            Path(location).with_name("other").write_bytes(b"other")
            Path(location).with_name("other").replace(location)
            return handle

    plan = bench.plan([float(k) for k in range(5000)], {"y": pa.float64()})
    with pytest.raises(Broken, match=r"in\.parquet has changed"):
        score(bench.scorer(plan, '{"y": x}', blobs_for=lambda _: ReplacedBlobs()))
    assert not Path(part_location(plan, 0)).exists()
    assert list((bench.folder / "out" / "_twoshift" / "staging").iterdir()) == []
