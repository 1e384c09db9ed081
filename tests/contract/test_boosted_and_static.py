"""LightGBM, CatBoost and static embeddings answer as the libraries that saved them; damaged files are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_models import TEXTS, answers, make_tokenizer, sentence_transformers, st_modules

from twoshift.engine.example_rows import examples_of
from twoshift.errors import Broken, InvalidInput, UnusableModel
from twoshift.runtime import load_model

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
lightgbm, catboost, model2vec = (
    pytest.importorskip(name, reason=f"{name} is not installed") for name in ("lightgbm", "catboost", "model2vec")
)
RANDOM = np.random.default_rng(3)
ROWS = RANDOM.random((80, 4))
ROWS[::7, 1] = np.nan
LABELS = (ROWS[:, 0] * 3).astype(int)


def predictions(path: Path) -> np.ndarray:
    rows = [[None if np.isnan(value) else value for value in row] for row in ROWS.tolist()]
    return answers(load_model(str(path), threads=1), rows, "prediction")


@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass", "poisson"])
def test_lightgbm_predicts_as_it_does_itself(objective: str, tmp_path: Path) -> None:
    options = {"objective": objective, "verbose": -1, "min_data_in_leaf": 2, "num_threads": 1}
    options |= {"num_class": 3} if objective == "multiclass" else {}
    target = LABELS > 0 if objective == "binary" else LABELS
    booster = lightgbm.train(options, lightgbm.Dataset(ROWS, label=target, categorical_feature=[]), 5)
    booster.save_model(tmp_path / "model.txt")
    np.testing.assert_array_equal(predictions(tmp_path / "model.txt"), booster.predict(ROWS))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("left_child=", "left_child=9"),
        lambda text: text.replace("split_feature=", "split_feature=7"),
        lambda text: text.replace("tree\n", "trunk\n", 1),
        lambda text: text.replace("num_leaves=", "num_leaves=9"),
    ],
)
def test_a_damaged_lightgbm_file_is_refused(damage: Any, tmp_path: Path) -> None:
    data = lightgbm.Dataset(ROWS, label=LABELS)
    booster = lightgbm.train({"objective": "regression", "verbose": -1, "min_data_in_leaf": 2}, data, 3)
    (tmp_path / "model.txt").write_text(damage(booster.model_to_string()))
    with pytest.raises(Broken, match=r"model\.txt is not a valid LightGBM model"):
        load_model(str(tmp_path / "model.txt"))


@pytest.mark.parametrize("loss", ["RMSE", "Poisson", "Logloss", "MultiClass"])
def test_catboost_predicts_as_it_does_itself(loss: str, tmp_path: Path) -> None:
    kind = catboost.CatBoostClassifier if loss in ("Logloss", "MultiClass") else catboost.CatBoostRegressor
    target = (LABELS > 0).astype(int) if loss == "Logloss" else LABELS
    model = kind(loss_function=loss, iterations=5, verbose=0, allow_writing_files=False).fit(ROWS, target)
    model.save_model(str(tmp_path / "model.cbm"))
    theirs = model.predict_proba(ROWS) if kind is catboost.CatBoostClassifier else model.predict(ROWS)
    np.testing.assert_allclose(predictions(tmp_path / "model.cbm"), theirs, rtol=1e-6)


def test_a_catboost_model_over_words_is_refused_by_their_names(tmp_path: Path) -> None:
    rows = [[row[0], "red" if row[2] > 0.5 else "blue"] for row in ROWS.tolist()]
    pool = catboost.Pool(rows, LABELS, cat_features=[1], feature_names=["size", "colour"])
    catboost.CatBoostRegressor(iterations=2, verbose=0, allow_writing_files=False).fit(pool).save_model(
        str(tmp_path / "model.cbm")
    )
    with pytest.raises(UnusableModel, match=r"features that are not numbers \(colour\)"):
        load_model(str(tmp_path / "model.cbm"))


@pytest.mark.parametrize("kept", [3, 100])
def test_a_catboost_file_that_was_cut_short_is_refused(kept: int, tmp_path: Path) -> None:
    catboost.CatBoostRegressor(iterations=2, verbose=0, allow_writing_files=False).fit(ROWS, LABELS).save_model(
        str(tmp_path / "model.cbm")
    )
    (tmp_path / "model.cbm").write_bytes((tmp_path / "model.cbm").read_bytes()[:kept])
    with pytest.raises(Broken, match=r"CBM1|truncated"):
        load_model(str(tmp_path / "model.cbm"))


def word_tokenizer() -> Any:
    return make_tokenizer("bert").backend_tokenizer


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("quantized", [False, True])
def test_a_model2vec_folder_embeds_as_model2vec_does(normalize: bool, quantized: bool, tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.no_truncation()
    tokens = tokenizer.get_vocab_size()
    more = {"token_mapping": RANDOM.integers(0, 9, tokens), "weights": RANDOM.random(tokens)} if quantized else {}
    vectors = RANDOM.normal(size=(9 if quantized else tokens, 16)).astype(np.float32)
    theirs = model2vec.StaticModel(vectors, tokenizer, normalize=normalize, max_length=30, **more)
    theirs.save_pretrained(tmp_path / "model")
    reference = model2vec.StaticModel.from_pretrained(tmp_path / "model")
    ours = load_model(str(tmp_path / "model"))
    assert ours.info.runtime == "numpy"
    np.testing.assert_allclose(answers(ours, TEXTS, "embedding"), reference.encode(TEXTS), atol=1e-5)


def test_a_token_without_a_vector_is_refused_as_a_static_model_loads(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.no_truncation()
    rows = tokenizer.get_vocab_size() - 1  # the last token's id is the count of rows
    model2vec.StaticModel(np.ones((rows + 1, 16), np.float32), tokenizer).save_pretrained(tmp_path / "model")
    save_file({"embeddings": np.ones((rows, 16), np.float32)}, tmp_path / "model" / "model.safetensors")
    with pytest.raises(InvalidInput, match=f"{rows} cannot be used; expected token ids below {rows}, the vocab_size"):
        load_model(str(tmp_path / "model"))


def test_a_static_model_with_vectors_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    vectors = np.ones((word_tokenizer().get_vocab_size(), 16), np.float32)
    vectors[3, 2] = np.inf
    model2vec.StaticModel(vectors, word_tokenizer()).save_pretrained(tmp_path / "model")
    with pytest.raises(UnusableModel, match=r"has weights that are not finite \(embeddings\)"):
        load_model(str(tmp_path / "model"))


@pytest.mark.parametrize("count", ["num_class", "num_tree_per_iteration", "max_feature_idx"])
def test_counts_that_a_lightgbm_file_cannot_hold_are_refused(count: str, tmp_path: Path) -> None:
    options = {"objective": "multiclass", "num_class": 3, "verbose": -1, "min_data_in_leaf": 2}
    text = lightgbm.train(options, lightgbm.Dataset(ROWS, np.arange(len(ROWS)) % 3), 2).model_to_string()
    (tmp_path / "model.lgb").write_text(re.sub(rf"\n{count}=\d+", f"\n{count}=2000000000", text))
    with pytest.raises(Broken, match=count):
        load_model(str(tmp_path / "model.lgb"))


def test_example_rows_are_made_of_words_that_a_static_model_knows(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "katze": 1, "hund": 2, "maus": 3}  # none of the usual ones
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    vectors = RANDOM.normal(size=(len(words), 16)).astype(np.float32)
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(tmp_path / "model")
    ours = load_model(str(tmp_path / "model"))
    made = examples_of(ours, 64)
    assert made is not None
    assert made.row.tokens == 64
    assert {int(n) for n in ours.prepare(made.make(20, 64)).lengths} == {64}


@pytest.mark.parametrize("dim", [None, 4])
def test_a_static_embedding_embeds_as_sentence_transformers_does(dim: int | None, tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    vectors = RANDOM.normal(size=(tokenizer.get_vocab_size(), 16)).astype(np.float32)
    modules = [st_modules.StaticEmbedding(tokenizer, embedding_weights=vectors), st_modules.Normalize()]
    theirs = sentence_transformers.SentenceTransformer(
        modules=modules, device="cpu", truncate_dim=dim, prompts={"query": "find "}, default_prompt_name="query"
    )
    theirs.save(str(tmp_path / "model"))
    ours = load_model(str(tmp_path / "model"))
    np.testing.assert_allclose(answers(ours, TEXTS, "embedding"), theirs.encode(TEXTS), atol=1e-5)
    with pytest.raises(InvalidInput, match="precision"):
        load_model(str(tmp_path / "model"), precision="int8")
