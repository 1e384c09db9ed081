"""The CPU encoder answers as sentence-transformers and transformers do, whatever rides with a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import (
    CLASSIFIER,
    ENGLISH,
    PAIRS,
    TEXTS,
    answers,
    assert_same,
    make_folder,
    make_tokenizer,
    sentence_transformers,
    st_modules,
    torch,
    transformers,
)

from twoshift.errors import InvalidInput
from twoshift.ports import Runtime
from twoshift.runtime.encoder import onnx_encoder
from twoshift.runtime.encoder.folder import find_minilm, read_folder
from twoshift.runtime.encoder.generic import load_generic_encoder
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load

LIBRARIES = ("openvino", "onnxruntime")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return request.param


def load(path: Path, library: str, home: Path, threads: int = 1) -> Runtime:
    return load_onnx_encoder(read_folder(path), str(path), threads, library, home)


@pytest.mark.parametrize("style", ["bert", "roberta", "xlm-roberta", "mpnet", "modernbert"])
def test_a_bare_folder_of_each_family_is_mean_pooled_as_sentence_transformers_does(
    style: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "model", style)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=5)
    runtime = load(folder, library, tmp_path / "home")
    assert_same(answers(runtime, TEXTS, "embedding"), theirs)
    monkeypatch.setattr(onnx_encoder, "_MAX_WASTE", 1.0)  # now all rows are padded to the longest
    assert_same(answers(runtime, TEXTS, "embedding"), theirs)


@pytest.mark.parametrize(
    "pooling", ["cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean")]
)
def test_poolings_dense_layers_and_norms_follow_the_folder(
    pooling: Any, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_encoder, "_MAX_WASTE", 0.5)
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")), max_seq_length=20)
    pool = st_modules.Pooling(32, pooling)
    dense = st_modules.Dense(pool.pooling_output_dimension, 12, activation_function=torch.nn.Tanh())
    theirs = sentence_transformers.SentenceTransformer(
        modules=[body, pool, dense, st_modules.Normalize()], device="cpu"
    )
    theirs.save(str(tmp_path / "model"))
    runtime = load(tmp_path / "model", library, tmp_path / "home")
    assert runtime.info.max_row_tokens == 20
    assert_same(answers(runtime, TEXTS, "embedding"), theirs.encode(TEXTS))


@pytest.mark.parametrize("style", ["bert", "roberta", "mpnet", "modernbert"])
def test_a_cross_encoder_scores_pairs_as_sentence_transformers_does(style: str, library: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", style, CLASSIFIER, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    ours = answers(load(folder, library, tmp_path / "home"), PAIRS, "score")
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert ours.std() > 0.01


def test_a_saved_cross_encoder_keeps_its_own_activation(library: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bare", "bert", CLASSIFIER, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    theirs.save_pretrained(str(tmp_path / "model"))
    ours = answers(load(tmp_path / "model", library, tmp_path / "home"), PAIRS, "score")
    np.testing.assert_allclose(ours, theirs.predict(PAIRS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("style", ["bert", "xlm-roberta", "mpnet", "modernbert"])
def test_a_classifier_gives_labels_and_scores_as_transformers_does(style: str, library: str, tmp_path: Path) -> None:
    names = {0: "no", 1: "maybe", 2: "yes"}
    folder = make_folder(tmp_path / "model", style, CLASSIFIER, num_labels=3, id2label=names)
    theirs = classifier_scores(folder)
    columns = (runtime := load(folder, library, tmp_path / "home")).launch([runtime.prepare(TEXTS)]).wait()
    np.testing.assert_allclose(columns["scores"], theirs, atol=2e-5)
    assert columns["label"].tolist() == [names[best] for best in theirs.argmax(axis=1).tolist()]


def classifier_scores(folder: Path) -> NDArray[np.float32]:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    given = make_tokenizer(model.config.model_type)(TEXTS, padding=True, truncation=True, return_tensors="pt")
    given = {key: value for key, value in given.items() if key != "token_type_ids"}
    with torch.inference_mode():
        return torch.softmax(model(**given).logits, dim=-1).numpy()


def test_another_kind_of_network_goes_through_transformers(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "distilbert")
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=5)
    runtime = load_generic_encoder(read_folder(folder), "distil", threads=2)
    assert runtime.info.runtime == "torch"
    assert_same(answers(runtime, TEXTS, "embedding"), theirs)


def test_another_kind_of_cross_encoder_goes_through_transformers(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "distilbert", CLASSIFIER, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    ours = answers(load_generic_encoder(read_folder(folder), "distil", threads=2), PAIRS, "score")
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.fixture(scope="module")
def minilm() -> Path:
    try:
        return find_minilm()
    except InvalidInput as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def minilm_reference(minilm: Path) -> NDArray[np.float32]:
    return sentence_transformers.SentenceTransformer(str(minilm), device="cpu").encode(TEXTS)


def test_minilm_embeds_as_sentence_transformers_does(
    minilm: Path, minilm_reference: NDArray[np.float32], library: str, tmp_path: Path
) -> None:
    runtime = load(minilm, library, tmp_path, threads=2)
    assert_same(answers(runtime, TEXTS, "embedding"), minilm_reference)
    rows = runtime.prepare(TEXTS)
    assert rows.truncated.tolist() == [text == ENGLISH * 40 for text in TEXTS]


def test_a_row_s_answer_does_not_depend_on_what_rides_with_it(minilm: Path, library: str, tmp_path: Path) -> None:
    runtime = load(minilm, library, tmp_path, threads=2)
    together = answers(runtime, TEXTS, "embedding")
    alone = np.concatenate([answers(runtime, [text], "embedding") for text in TEXTS])
    assert_same(alone, together)
    order = np.random.default_rng(3).permutation(len(TEXTS))
    assert_same(answers(runtime, [TEXTS[k] for k in order], "embedding"), together[order])
    many = answers(runtime, TEXTS * 3, "embedding")
    assert_same(many, np.tile(together, (3, 1)))


def test_rows_come_back_in_the_order_of_the_parts(minilm: Path, library: str, tmp_path: Path) -> None:
    runtime = load(minilm, library, tmp_path, threads=3)
    whole = runtime.prepare(TEXTS)
    parts = [runtime.prepare(TEXTS[:2]), whole.slice(2, 9), whole.slice(9, 9), runtime.prepare(TEXTS[9:])]
    assert_same(runtime.launch(parts).wait()["embedding"], answers(runtime, TEXTS, "embedding"))
    assert runtime.launch([]).wait()["embedding"].shape == (0, 384)
