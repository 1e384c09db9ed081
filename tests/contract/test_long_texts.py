"""A text that is longer than a model takes, in pieces: the same answer live, from prepared rows and in a job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backends import HERE, Front
from tiny_encoder import LONGEST, WORDS, make_tiny_encoder

from twoshift.batch.settings import JobSettings
from twoshift.engine.long_texts import check_split, pieced_by, split_cost
from twoshift.errors import InvalidInput
from twoshift.ports import RuntimeInfo
from twoshift.runtime.encoder.folder import read_folder
from twoshift.runtime.encoder.onnx_encoder import OnnxEncoder, load_onnx_encoder
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model_settings import ModelSettings
from twoshift.wiring.job_workers import job_for
from twoshift.wiring.served_models import served_model

ROOM = LONGEST - 2  # beside [CLS] and [SEP]
LONG = " ".join(WORDS[k * k % len(WORDS)] for k in range(2 * ROOM + 20))  # three pieces
TEXTS = ["a quick fox", LONG, "the river", f"{LONG} {LONG}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mean pooling, and vectors of length 1."""
    path = make_tiny_encoder(tmp_path_factory.mktemp("long") / "tiny")
    modules = [("0", "", "models.Transformer"), ("1", "1_Pooling", "models.Pooling")]
    modules.append(("2", "2_Normalize", "models.Normalize"))
    told = [{"idx": int(k), "name": k, "path": where, "type": f"sentence_transformers.{name}"}
            for k, where, name in modules]  # fmt: skip
    (path / "modules.json").write_text(json.dumps(told))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnnxEncoder]:
    runtime = load_onnx_encoder(read_folder(folder), "tiny", 1, "onnxruntime", tmp_path_factory.mktemp("home"))
    yield runtime
    runtime.close()


def vectors(runtime: OnnxEncoder, rows: Any) -> np.ndarray:
    return np.asarray(runtime.launch([rows]).wait()["embedding"], np.float64)


def by_hand(runtime: OnnxEncoder, text: str) -> np.ndarray:
    """The rule as docs/jobs.md has it."""
    words = text.split()
    count = -(-len(words) // ROOM)
    size = -(-len(words) // count)
    pieces = [" ".join(words[at : at + size]) for at in range(0, len(words), size)]
    prepared = runtime.prepare(pieces)
    mean = np.average(vectors(runtime, prepared), axis=0, weights=prepared.lengths)
    return mean / np.linalg.norm(mean)


def live(folder: Path, rows: list[Any], too_long: str) -> np.ndarray:
    model = served_model(
        "tiny", ModelSettings(model=str(folder), slo_ms=60_000, threads=1, too_long=too_long), lambda _: None
    )
    front = Front(HERE, model)
    try:
        now_s = time.monotonic()
        answer = front.run(model.answer(LiveRequest(rows, now_s + 60.0, now_s)))
        assert answer.truncated == (0 if too_long == "split" else 2)
        return np.stack([row["embedding"] for row in answer.rows])
    finally:
        front.close()


def test_live_requests_and_jobs_give_the_mean_of_the_pieces(
    folder: Path, encoder: OnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    expected = np.stack([by_hand(encoder, text) for text in TEXTS])
    found = live(folder, TEXTS, "split")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(live(folder, TEXTS, "cut") - expected).max(axis=1)[[1, 3]].min() > 1e-3  # it does differ

    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    settings = JobSettings(
        inputs=(str(tmp_path / "in.parquet"),), output=str(tmp_path / "out"), model=str(folder), text="text",
        too_long="split", threads=1,
    )  # fmt: skip
    result = job_for(settings).run(lambda _: None, lambda _: None)
    part = pq.read_table(tmp_path / "out" / "part-000000.parquet").to_pydict()
    np.testing.assert_allclose(np.array(part["embedding"]), found, atol=1e-5)
    assert result.summary is not None
    assert (result.summary.split, result.summary.truncated, result.summary.errors) == (2, 0, 0)
    receipt = result.summary.parity
    assert receipt is not None
    assert receipt.passed


def test_pieces_hold_every_token_and_none_is_too_long(encoder: OnnxEncoder) -> None:
    given = pieced_by(encoder.prepare, encoder.row_preparer, "split")(TEXTS)
    assert given.pieces is not None
    assert (given.texts, given.pieces.split) == (4, 2)
    assert given.rows.lengths.max() <= LONGEST
    held = given.text_tokens - 2 * np.bincount(given.pieces.owners)
    assert held.tolist() == [len(text.split()) for text in TEXTS]
    of_one = given.rows.lengths[given.pieces.owners == 1]
    assert of_one.max() - of_one.min() <= 2  # nearly one size
    assert not given.rows.truncated.any()


def test_what_is_cut_costs_less_than_its_pieces(encoder: OnnxEncoder) -> None:
    assert split_cost(encoder.row_preparer, ["a quick fox"]) == 1.0
    assert 2.0 < split_cost(encoder.row_preparer, [LONG]) <= 3.0


def test_ids_and_pairs_have_no_pieces(encoder: OnnxEncoder) -> None:
    with pytest.raises(InvalidInput, match=r"row 1: .* only texts can be split"):
        pieced_by(encoder.prepare, encoder.row_preparer, "split")(["a", [5] * (LONGEST + 1)])


def test_scores_have_a_mean_and_the_label_is_its_own(encoder: OnnxEncoder) -> None:
    given = pieced_by(encoder.prepare, encoder.row_preparer, "split")(["a", LONG])
    assert given.pieces is not None
    info = RuntimeInfo("m", "", "x", "cpu", "fp32", 64, ("label", "scores"), classes={"scores": ("no", "yes")})
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.3, 0.7]], np.float32)
    labels = np.array(["no", "yes", "no", "yes"])
    found = given.pieces.merged({"label": labels, "scores": scores}, info)
    assert found["label"].tolist() == ["no", "yes"]
    weights = given.rows.lengths[1:]
    np.testing.assert_allclose(found["scores"], [scores[0], np.average(scores[1:], axis=0, weights=weights)], rtol=1e-6)


def test_models_whose_answers_have_no_mean_are_refused_by_name() -> None:
    info = RuntimeInfo("rerank", "", "x", "cpu", "fp32", 64, ("score",))
    with pytest.raises(InvalidInput, match=r"too_long.*cut or error; rerank returns score, and only .* of encoders"):
        check_split("split", info)
    with pytest.raises(InvalidInput, match="a pair of texts cannot be split"):
        JobSettings(inputs=("a",), output="o", model="m", text="q", pair="d", too_long="split")
