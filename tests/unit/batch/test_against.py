"""Answers of two jobs over the same rows, however each has cut them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch import against
from twoshift.batch.against import compared, read_against, write_against
from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput

FILES = (InputFile("docs/0.parquet", 100, "id", "parquet"),)
VECTORS = pa.schema([pa.field("embedding", pa.list_(pa.float32(), 2)), pa.field("error", pa.string())])
Row = dict[str, Any]


def job(folder: Path, name: str, rows: Sequence[Row], schema: pa.Schema, each: int, **settings: Any) -> Plan:
    """A job that is done, in parts of so many rows."""
    made = JobSettings(**{"inputs": ("docs",), "output": str(folder / name), "model": name, "text": "t", **settings})
    shards = tuple((Piece(0, at, at + each, each, 1000),) for at in range(0, len(rows), each))
    plan = Plan.make(made, PlannedModel(name, f"sum of {name}", "fp32", ()), FILES, shards, schema, RowFigures(0.01))
    (folder / name).mkdir()
    for shard in range(len(shards)):
        part = rows[shard * each : (shard + 1) * each]
        path = Path(part_location(plan, shard))
        if made.output_format == "parquet":
            pq.write_table(pa.Table.from_pylist(part, schema), path)
        else:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in part))
    return plan


def vector(x: float, y: float) -> Row:
    return {"embedding": [x, y], "error": None}


FAILED: Row = {"embedding": None, "error": "unlucky"}


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_rows_are_compared_however_the_jobs_have_cut_them(
    tmp_path: Path, form: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against, "_ROWS", window)
    stable = job(tmp_path, "m:1", [vector(1, 0)] * 6 + [FAILED] * 2 + [vector(1, 0)] * 2, VECTORS, 4)
    answers = [vector(2, 0)] * 5 + [vector(0, 1), FAILED, vector(1, 0), FAILED, vector(1, 0)]
    candidate = job(tmp_path, "m:2", answers, VECTORS, 3, output_format=form)
    made = compared(candidate, stable, lambda _: LocalBlobs())
    assert (made.candidate, made.stable, made.kind, made.rows) == ("m:2", "m:1", "embedding", 9)
    assert (made.failed_candidate, made.failed_stable, made.failed_both) == (1, 1, 1)
    assert made.mean == pytest.approx(3 / 9)
    assert made.share_above == pytest.approx(3 / 9)
    assert made.candidate_checksum == "sum of m:2"
    write_against(LocalBlobs(), candidate.settings.output, made)
    assert read_against(LocalBlobs(), candidate.settings.output) == made


def test_the_documents_of_a_query_are_ranked_together(tmp_path: Path) -> None:
    scores = pa.schema([pa.field("score", pa.float32()), pa.field("error", pa.string())])
    with_query = pa.schema([pa.field("q", pa.string()), *scores])
    stable = [{"q": "ab"[k // 3], "score": float(k), "error": None} for k in range(6)]
    candidate = [{"score": float(k if k < 3 else -k), "error": None} for k in range(6)]
    named = {"text": "q", "pair": "d"}
    one = job(tmp_path, "m:1", stable, with_query, 2, keep=("q",), **named)
    made = compared(job(tmp_path, "m:2", candidate, scores, 6, **named), one, lambda _: LocalBlobs())
    assert (made.kind, made.mean, made.worst) == ("ranking", 0.5, 1.0)


def test_other_columns_are_another_answer(tmp_path: Path) -> None:
    other = pa.schema([pa.field("prediction", pa.float64()), pa.field("error", pa.string())])
    stable = job(tmp_path, "m:1", [vector(1, 0)] * 2, VECTORS, 2)
    candidate = job(tmp_path, "m:2", [{"prediction": 1.0, "error": None}] * 2, other, 2)
    assert compared(candidate, stable, lambda _: LocalBlobs()).mean == 1.0


@pytest.mark.parametrize("rows", [2, 3, 6])
def test_jobs_over_other_rows_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(against, "_ROWS", 2)
    stable = job(tmp_path, "m:1", [vector(1, 0)] * 4, VECTORS, 2)
    candidate = job(tmp_path, "m:2", [vector(1, 0)] * rows, VECTORS, 3)
    with pytest.raises(Broken, match="different numbers of rows"):
        compared(candidate, stable, lambda _: LocalBlobs())
    monkeypatch.setitem(globals(), "FILES", (InputFile("docs/0.parquet", 100, "another", "parquet"),))
    changed = job(tmp_path, "m:3", [vector(1, 0)] * 4, VECTORS, 2)
    with pytest.raises(InvalidInput, match="stay the same while the job runs both models"):
        compared(changed, stable, lambda _: LocalBlobs())
