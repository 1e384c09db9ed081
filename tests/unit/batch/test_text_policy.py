"""What becomes of long and of empty texts, in jobs and in live requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from texts_runtime import INFO, SumRuntime, summed
from twoshift.batch.inputs import ShardTarget, cut, kept_schema, resolve
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location
from twoshift.batch.result_columns import output_schema
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.blobs.local import LocalBlobs
from twoshift.endpoints.facts import check_texts
from twoshift.engine import Engine
from twoshift.errors import InvalidInput, TooLarge
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.runtime.encoder.tokens import TokenRows
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.preparing import Preparing
from twoshift.serve.stages import Stages
from twoshift.types import TextPolicy

MOST = 6
TEXTS = ["short", "longer text", None, "", "  ", "abc"]
BLOBS = LocalBlobs()


class Cutting(SumRuntime):
    """Cuts texts at a few characters; an empty one has a token, too."""

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        made = super().prepare([(text or "\0")[:MOST] for text in rows])
        made.truncated = np.array([len(text) > MOST for text in rows])
        return made


def scored(folder: Path, **options: Any) -> tuple[dict[str, list[Any]], Any]:
    """The columns of the only part, and what it says of itself."""
    path, output = folder / "in.parquet", str(folder / "out")
    pq.write_table(pa.table({"text": pa.array(TEXTS, pa.string())}), path)
    settings = JobSettings(inputs=(str(path),), output=output, model="m", text="text", **options)
    files = tuple(resolve(settings.inputs, lambda _: BLOBS))
    shards = cut(files, lambda _: BLOBS, ShardTarget(rows=100))
    schema = output_schema(
        kept_schema(files, lambda _: BLOBS, ()), {"sum": pa.float64(), "wide": pa.list_(pa.float32(), 8)}
    )
    plan = Plan.make(settings, PlannedModel("m", "", "fp32", ()), files, shards, schema, RowFigures(0.001))
    with Engine(Cutting(), CallCost.line(0.0, 1e-5), LaneLimits(max_rows=256)) as engine:
        scorer = ShardScorer(engine, plan, lambda _: BLOBS, "here")
        stats = scorer.score(0, threading.Event(), lambda: None)[0]
    return pq.read_table(part_location(plan, 0)).to_pydict(), stats


def outcome(part: dict[str, list[Any]]) -> list[str]:
    """Of each row: its answer, an error or nothing."""
    return [
        "error" if error else "none" if value is None else "answer"
        for value, error in zip(part["sum"], part["error"], strict=True)
    ]


@pytest.mark.parametrize(
    ("empty", "expected"),
    [
        (None, ["error", "answer", "answer"]),
        ("error", ["error", "error", "error"]),
        ("skip", ["none", "none", "none"]),
        ("answer", ["answer", "answer", "answer"]),
    ],
)
def test_null_and_blank_texts_of_a_job(tmp_path: Path, empty: str | None, expected: list[str]) -> None:
    part, stats = scored(tmp_path, empty=empty)
    assert outcome(part) == ["answer", "answer", *expected, "answer"]
    assert (stats.rows, stats.errors, stats.skipped) == (6, expected.count("error"), expected.count("none"))
    assert part["sum"][5] == summed("abc")


def test_a_text_in_pieces_counts_as_one_row_of_progress() -> None:
    settings = make_settings({"inputs": ["a"], "output": "b", "model": "m", "text": "t", "too_long": "split"})
    assert kind_of(settings).rows_done(settings, by_model=31, written=4) == 4
    cut = msgspec.structs.replace(settings, too_long="cut")
    assert kind_of(cut).rows_done(cut, by_model=31, written=4) == 31


def test_a_long_text_of_a_job_is_cut_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    part, stats = scored(tmp_path / "cut", empty="skip")
    assert (part["sum"][1], stats.truncated) == (summed("longer"), 1)
    (tmp_path / "error").mkdir()
    part, stats = scored(tmp_path / "error", empty="skip", too_long="error")
    assert outcome(part) == ["answer", "error", "none", "none", "none", "answer"]
    assert f"at most {INFO.max_row_tokens} tokens" in part["error"][1]
    assert (stats.truncated, stats.kinds) == (0, {"too long": 1})
    assert (part["sum"][0], part["sum"][5]) == (summed("short"), summed("abc"))


@pytest.mark.parametrize("name", [{"too_long": "error"}, {"empty": "skip"}])
def test_a_job_without_texts_has_no_policy_for_them(name: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="cannot be used without --text"):
        JobSettings(inputs=("a",), output="o", model="m", columns=("x",), **name)  # type: ignore[arg-type]


def asked(rows: list[Any], texts: TextPolicy) -> Any:
    async def ask() -> Any:
        preparing, now_s = Preparing("m", Cutting().prepare, is_users=False, texts=texts), time.monotonic()
        try:
            return await preparing.prepared(LiveRequest(rows, now_s + 60.0, now_s), 10, Stages(), now_s)
        finally:
            preparing.close()

    return asyncio.run(ask())


def test_live_texts_have_the_same_policy() -> None:
    assert asked(["short", "longer text", ""], TextPolicy()).rows.truncated.tolist() == [False, True, False]
    with pytest.raises(TooLarge, match=r"row 1: .* at most 6 tokens"):
        asked(["short", "longer text"], TextPolicy(too_long="error"))
    with pytest.raises(InvalidInput, match=r"row 1: .* not empty"):
        asked(["short", " "], TextPolicy(empty="error"))


@pytest.mark.parametrize("row", ["", ("a", " "), {"text": "", "prompt_name": "query"}, {"text": None}])
def test_every_shape_of_an_empty_text_is_refused(row: Any) -> None:
    with pytest.raises(InvalidInput, match="row 1"):
        check_texts(["a", row], TextPolicy(empty="error"))


@pytest.mark.parametrize("row", ["a", ("a", "b"), {"x": ""}, [1, 2]])
def test_what_is_no_empty_text_passes(row: Any) -> None:
    check_texts([row], TextPolicy(empty="error"))
