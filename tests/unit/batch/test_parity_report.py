"""What the parity receipt says of rows that agree, and of rows that do not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_llm import FakeLlm

from twoshift.batch.inputs import ShardTarget, cut, kept_schema, resolve
from twoshift.batch.parity_report import ParityReport, _compared, _merged, _row, _with_tokens, take_receipt
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location
from twoshift.batch.result_columns import output_schema
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.engine import Engine
from twoshift.engine.llm import LlmEngine
from twoshift.errors import DeviceLost
from twoshift.generation import GenerationParams, GenerationRequest, Message
from twoshift.llm_ports import Step
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.wiring.model_loading import load_model

NAN, INF = math.nan, math.inf
VECTOR = np.array([3.0, 4.0], np.float32)


def cosine(live: Any, stored: Any) -> float:
    found = _compared(np.asarray(live, np.float32), stored).worst_cosine
    assert found is not None
    return found


def difference(live: Any, stored: Any) -> float:
    found = _compared(np.asarray(live, np.float32), stored).worst_difference
    assert found is not None
    return found


def test_the_same_vector_agrees() -> None:
    assert cosine(VECTOR, [3.0, 4.0]) == pytest.approx(1.0)
    assert difference(VECTOR, [3.0, 4.0]) == 0.0


def test_a_vector_of_another_length_is_seen_in_the_difference() -> None:
    assert cosine(VECTOR, [6.0, 8.0]) == pytest.approx(1.0)
    assert difference(VECTOR, [6.0, 8.0]) == 4.0


def test_zeros_agree_with_zeros_only() -> None:
    assert cosine([0.0, 0.0], [0.0, 0.0]) == 1.0
    assert cosine([0.0, 0.0], [3.0, 4.0]) == 0.0
    assert cosine(VECTOR, [0.0, 0.0]) == 0.0


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_very_small_and_very_large_vectors_have_a_cosine(scale: float) -> None:
    assert cosine([scale, 0.0], [0.0, scale]) == 0.0
    assert cosine([scale, scale], [scale, scale]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("live", "stored"),
    [([NAN, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, NAN]), ([INF, 1.0], [-INF, 1.0]), ([INF, 1.0], [NAN, 1.0])],
)
def test_what_is_no_number_on_one_side_only_is_the_worst(live: list[float], stored: list[float]) -> None:
    assert cosine(live, stored) == -1.0
    assert difference(live, stored) > 1e300


@pytest.mark.parametrize("odd", [NAN, INF, -INF])
def test_what_is_no_number_on_both_sides_agrees_and_hides_nothing_else(odd: float) -> None:
    assert (cosine([odd, 3.0, 4.0], [odd, 3.0, 4.0]), difference([odd, 3.0], [odd, 3.0])) == (pytest.approx(1.0), 0.0)
    assert (cosine([odd, 1.0, 0.0], [odd, 0.0, 1.0]), difference([odd, 1.0], [odd, 0.0])) == (0.0, 1.0)


@pytest.mark.parametrize("stored", [[3.0], [[3.0, 4.0]], 3.0, None, []])
def test_another_shape_is_the_worst(stored: Any) -> None:
    assert cosine(VECTOR, stored) == -1.0
    assert difference(VECTOR, stored) > 1e300


def test_numbers_have_a_difference_and_no_cosine() -> None:
    assert _compared(np.asarray(2.5), 2.0) == ParityReport(0, None, 0.5, 0)
    assert _compared(np.asarray(2), 2) == ParityReport(0, None, 0.0, 0)
    assert difference(NAN, 2.0) > 1e300
    assert difference(NAN, NAN) == 0.0


def test_other_values_are_equal_or_not() -> None:
    assert _compared(np.asarray("a"), "a").unequal == 0
    assert _compared(np.asarray("a"), "b").unequal == 1
    assert _compared(np.asarray(1.0), "b").unequal == 1


def test_a_row_is_unequal_once_and_so_is_one_whose_column_is_missing() -> None:
    live = {"a": np.asarray("x"), "b": np.asarray("y")}
    assert _row(live, {"a": "x", "b": "y"}) == ParityReport(1, None, None, 0)
    assert _row(live, {"a": "?", "b": "?"}) == ParityReport(1, None, None, 1)
    assert _row(live, {"a": "x"}) == ParityReport(1, None, None, 1)


@pytest.mark.parametrize("nan_first", [True, False])
def test_nan_is_not_lost_among_others(nan_first: bool) -> None:
    pair = [ParityReport(1, NAN, NAN, 0), ParityReport(1, 1.0, 0.0, 0)]
    merged = _merged(*(pair if nan_first else pair[::-1]))
    assert merged.worst_cosine == -1.0
    assert (merged.worst_difference or 0.0) > 1e300


def test_the_worst_is_still_there_in_a_report() -> None:
    worst = _compared(np.asarray([NAN]), [1.0])
    assert msgspec.json.decode(msgspec.json.encode(worst), type=ParityReport) == worst


def test_a_problem_is_kept_and_a_receipt_of_before_has_none() -> None:
    assert _merged(ParityReport(0, None, None, 0, "gone"), ParityReport(1, None, 0.0, 0)).problem == "gone"
    before = b'{"rows": 1, "worst_cosine": null, "worst_difference": 0.0, "unequal": 0}'
    assert msgspec.json.decode(before, type=ParityReport) == ParityReport(1, None, 0.0, 0)


class Characters:
    """A token a character."""

    def ids(self, given: str, special: bool) -> list[int]:
        assert not special
        return [ord(each) for each in given]


def test_answers_are_compared_up_to_their_first_difference() -> None:
    tokens: Any = Characters()
    row = ParityReport(1, None, 0.0, 1)
    other = _with_tokens(row, tokens, "a red fox", "a rat")
    assert (other.tokens, other.agreeing_tokens) == (9, 3)
    same = _with_tokens(ParityReport(1, None, 0.0, 0), tokens, "a fox", "a fox")
    both = _merged(other, same)
    assert (both.rows, both.unequal, both.tokens, both.agreeing_tokens) == (2, 1, 14, 8)


@pytest.mark.parametrize(
    ("report", "passed"),
    [
        (ParityReport(4, None, 0.0, 0), True),
        (ParityReport(4, None, None, 0), True),
        (ParityReport(4, 0.9999, 1e-4, 0), True),
        (ParityReport(4, 0.98, 0.3, 0), False),
        (ParityReport(4, NAN, 0.0, 0), False),
        (ParityReport(4, None, 12.0, 1, tokens=90, agreeing_tokens=89), False),
        (ParityReport(4, None, 0.01, 0), None),  # numbers, and nobody has said how near is near
        (ParityReport(0, None, None, 0), None),
        (ParityReport(4, 1.0, 0.0, 0, problem="gone"), None),
    ],
)
def test_parity_is_passed_only_where_all_rows_agree(report: ParityReport, passed: bool | None) -> None:
    assert report.passed is passed
    assert report.to_dict()["passed"] is passed


MODEL = """
import numpy as np

class Model:
    def load(self): pass
    def predict(self, batch):
        x = np.asarray(batch["x"], np.float32)
        return {"v": np.stack([x, x + 1], 1), "label": np.array([str(int(n)) for n in x])}
"""
BLOBS = LocalBlobs()
RESULTS: dict[str, pa.DataType] = {"v": pa.list_(pa.float32(), 2), "label": pa.string()}


def blobs_for(_: str) -> LocalBlobs:
    return BLOBS


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "m.py").write_text(MODEL)
    runtime = load_model(f"{tmp_path / 'm.py'}:Model")
    engine = Engine(runtime, CallCost.line(0.0, 1e-5), LaneLimits(max_rows=8))
    yield engine
    engine.close()


@pytest.fixture
def taken(tmp_path: Path, engine: Engine) -> Callable[..., ParityReport]:
    """The receipt of a job of four rows whose part says this."""

    def take(vectors: list[Any], labels: list[str | None], errors: list[str | None]) -> ParityReport:
        pq.write_table(pa.table({"x": [0.0, 1.0, 2.0, 3.0]}), tmp_path / "in.parquet")
        inputs = (str(tmp_path / "in.parquet"),)
        settings = JobSettings(inputs=inputs, output=str(tmp_path / "out"), model="m", columns=("x",))
        files = tuple(resolve(inputs, blobs_for))
        schema = output_schema(kept_schema(files, blobs_for, ()), RESULTS)
        shards = cut(files, blobs_for, ShardTarget(rows=100))
        plan = Plan.make(settings, PlannedModel("m", "", "fp32", ()), files, shards, schema, RowFigures(0.001))
        (tmp_path / "out").mkdir()
        part = pa.table({"v": vectors, "label": labels, "error": errors}, schema=schema)
        pq.write_table(part, part_location(plan, 0))
        return take_receipt(engine, plan, [0], 32, blobs_for)

    return take


GOOD = [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
LABELS = ["0", "1", "2", "3"]


class _Together(FakeLlm):
    """Does nothing until so many are asked at the same time, and breaks where they never are."""

    least, looks = 0, 10_000

    def step(self, prefill_tokens: int | None = None) -> Step:
        if len(self.inside) >= self.least:
            self.least = 0
            return super().step(prefill_tokens)
        self.looks -= 1
        if not self.looks:
            raise DeviceLost("they were not asked together")
        time.sleep(0.001)
        return Step()


def test_answers_of_a_language_model_are_compared_all_at_once(tmp_path: Path) -> None:
    asked, llm = ["hello", "a fox", "b fox", "c fox"], _Together()
    pq.write_table(pa.table({"x": asked}), tmp_path / "in.parquet")
    inputs = (str(tmp_path / "in.parquet"),)
    settings = JobSettings(inputs=inputs, output=str(tmp_path / "out"), model="smollm", prompt="x", max_tokens=9)
    files = tuple(resolve(inputs, blobs_for))
    results = {"text": pa.string(), "finish_reason": pa.string(), "output_tokens": pa.int64()}
    schema = output_schema(kept_schema(files, blobs_for, ()), results)
    shards = cut(files, blobs_for, ShardTarget(rows=2))
    plan = Plan.make(settings, PlannedModel("smollm", "", "fp32", ()), files, shards, schema, RowFigures(0.001))
    (tmp_path / "out").mkdir()
    with LlmEngine(llm, llm.cost, serves=False) as engine:
        params = GenerationParams(temperature=0.0, max_tokens=9)
        rows = llm.prepare([GenerationRequest((Message("user", each),), params) for each in asked])
        answers = engine.submit_block(rows).result().columns["text"].tolist()
        for shard in range(2):
            same = {"finish_reason": ["length"] * 2, "output_tokens": [9, 9], "error": [None, None]}
            part = pa.table({"text": [answers[2 * shard], "another text"], **same}, schema=schema)
            pq.write_table(part, part_location(plan, shard))
        llm.least = 4
        found = take_receipt(engine, plan, [0, 1], 4, blobs_for)
    assert (found.rows, found.unequal, found.passed) == (4, 2, False)


def test_parts_that_the_live_path_would_answer_alike(taken: Callable[..., ParityReport]) -> None:
    found = taken(GOOD, LABELS, [None] * 4)
    assert found == ParityReport(4, pytest.approx(1.0), 0.0, 0)  # type: ignore[arg-type]


def test_parts_that_it_would_answer_otherwise(taken: Callable[..., ParityReport]) -> None:
    found = taken([*GOOD[:2], [NAN, 3.0], [6.0, 8.0]], [*LABELS[:3], "?"], [None] * 4)
    assert (found.rows, found.worst_cosine, found.unequal) == (4, -1.0, 1)
    assert (found.worst_difference or 0.0) > 1e300


def test_rows_without_a_result_are_not_compared(taken: Callable[..., ParityReport]) -> None:
    found = taken([None, *GOOD[1:]], [None, *LABELS[1:]], ["bad", None, None, None])
    assert (found.rows, found.worst_difference, found.problem) == (3, 0.0, None)


def test_a_receipt_without_rows_says_why(taken: Callable[..., ParityReport]) -> None:
    found = taken([None] * 4, [None] * 4, ["bad"] * 4)
    assert found.rows == 0
    assert "has a result" in (found.problem or "")
