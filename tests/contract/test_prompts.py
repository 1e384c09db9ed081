"""Prompts are applied as sentence-transformers applies them: by name, by default, and left out of the pooling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_models import CLASSIFIER, PAIRS, TEXTS, answers, assert_same, make_folder, sentence_transformers, st_modules

from twoshift.batch.settings import JobSettings
from twoshift.engine import Engine
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Runtime
from twoshift.runtime.encoder.folder import read_folder
from twoshift.runtime.encoder.generic import load_generic_encoder
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder
from twoshift.wiring.job_workers import job_for

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
PROMPTS = {"query": "find the text: ", "document": "", "title": "the quick brown fox "}
POOLINGS = ["mean", "cls", "max", "lasttoken", ("mean_sqrt_len_tokens", "weightedmean")]
Load = Callable[[Path, Path], Runtime]


def by_graph(folder: Path, home: Path) -> Runtime:
    return load_onnx_encoder(read_folder(folder), str(folder), 1, "onnxruntime", home)


def by_openvino(folder: Path, home: Path) -> Runtime:
    pytest.importorskip("openvino")
    return load_onnx_encoder(read_folder(folder), str(folder), 1, "openvino", home)


def by_transformers(folder: Path, home: Path) -> Runtime:
    return load_generic_encoder(read_folder(folder), str(folder), 1)


def prompted_model(path: Path, pooling: Any, include_prompt: bool, default: str | None = None) -> Any:
    body = st_modules.Transformer(str(make_folder(path / "body", "bert")))
    modules = [body, st_modules.Pooling(32, pooling, include_prompt=include_prompt)]
    theirs = sentence_transformers.SentenceTransformer(
        modules=modules, device="cpu", prompts=PROMPTS, default_prompt_name=default
    )
    theirs.save(str(path / "model"))
    return theirs


@pytest.mark.parametrize("load", [by_graph, by_openvino, by_transformers])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_prompt_is_left_out_of_the_pooling_where_the_model_says_so(load: Load, pooling: Any, tmp_path: Path) -> None:
    theirs = prompted_model(tmp_path, pooling, include_prompt=False)
    texts = TEXTS[:-2]  # a text that is cut is another matter
    rows = [{"text": text, "prompt_name": "title"} for text in texts]
    ours = load(tmp_path / "model", tmp_path / "home")
    assert_same(answers(ours, rows, "embedding"), theirs.encode(texts, prompt_name="title"))
    assert_same(answers(ours, texts, "embedding"), theirs.encode(texts))
    mixed = [rows[0], texts[1], {"text": texts[2], "prompt_name": "query"}]
    alone = [theirs.encode(text, prompt_name=name) for text, name in zip(texts, ("title", None, "query"), strict=False)]
    assert_same(answers(ours, mixed, "embedding"), np.stack(alone))


def test_a_prompt_by_name_by_text_and_by_default(tmp_path: Path) -> None:
    theirs = prompted_model(tmp_path, "mean", include_prompt=True, default="query")
    ours = by_graph(tmp_path / "model", tmp_path / "home")
    assert (dict(ours.info.prompts), ours.info.default_prompt_name) == (PROMPTS, "query")
    assert_same(answers(ours, TEXTS, "embedding"), theirs.encode(TEXTS))
    for name in PROMPTS:
        rows = [{"text": text, "prompt_name": name} for text in TEXTS]
        assert_same(answers(ours, rows, "embedding"), theirs.encode(TEXTS, prompt_name=name))
    for prompt in ("", "another: "):
        rows = [{"text": text, "prompt": prompt} for text in TEXTS]
        assert_same(answers(ours, rows, "embedding"), theirs.encode(TEXTS, prompt=prompt))


def test_the_default_prompt_is_the_same_in_both_shifts(tmp_path: Path) -> None:
    theirs = prompted_model(tmp_path, "mean", include_prompt=False, default="title")
    ours = by_graph(tmp_path / "model", tmp_path / "home")
    with Engine(ours, CallCost.line(0.002, 1e-4), LaneLimits(slo_s=600.0)) as engine:
        rows = engine.runtime.prepare(TEXTS[:5])
        live = [each.result()["embedding"] for each in engine.submit(rows, deadline_s=engine.now_s() + 60)]
        batch = engine.submit_block(rows).result().columns["embedding"]
    assert_same(np.stack(live), theirs.encode(TEXTS[:5]))
    assert_same(batch, theirs.encode(TEXTS[:5]))


def test_an_unknown_prompt_is_refused_with_the_known_names(tmp_path: Path) -> None:
    prompted_model(tmp_path, "mean", include_prompt=True)
    ours = by_graph(tmp_path / "model", tmp_path / "home")
    with pytest.raises(InvalidInput, match=r"row 1: prompt_name: 'qurey' .* one of document, query, title"):
        ours.prepare(["a", {"text": "b", "prompt_name": "qurey"}])


def test_a_cross_encoders_prompt_stands_before_its_first_text(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bare", "bert", CLASSIFIER, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu", prompts=PROMPTS, default_prompt_name="query")
    theirs.save_pretrained(str(tmp_path / "model"))
    ours = by_graph(tmp_path / "model", tmp_path / "home")
    np.testing.assert_allclose(answers(ours, PAIRS, "score"), theirs.predict(PAIRS), atol=2e-5)
    rows = [{"text": pair, "prompt_name": "title"} for pair in PAIRS]
    np.testing.assert_allclose(answers(ours, rows, "score"), theirs.predict(PAIRS, prompt_name="title"), atol=2e-5)


def test_a_job_puts_the_named_prompt_before_its_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    theirs = prompted_model(tmp_path, "mean", include_prompt=False)
    pq.write_table(pa.table({"body": TEXTS[:6]}), tmp_path / "docs.parquet")
    asked = {"inputs": (f"{tmp_path}/docs.parquet",), "model": str(tmp_path / "model"), "text": "body", "threads": 1}
    asked["device"] = "cpu"  # a GPU answers in bf16
    job_for(JobSettings(**asked, output=str(tmp_path / "out"), prompt_name="title")).run(lambda _: None, lambda _: None)
    ours = np.stack(pq.read_table(tmp_path / "out").column("embedding").to_numpy())
    assert_same(ours, theirs.encode(TEXTS[:6], prompt_name="title"))
    with pytest.raises(InvalidInput, match=r"prompt_name: 'qurey' .* prompts: document, query, title"):
        job_for(JobSettings(**asked, output=str(tmp_path / "other"), prompt_name="qurey")).run(
            lambda _: None, lambda _: None
        )
