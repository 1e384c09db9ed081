"""The CPU encoder answers as sentence-transformers and transformers do, whatever rides with a row."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.ports import Runtime
from twoshift.runtime.encoder import onnx_encoder
from twoshift.runtime.encoder.folder import find_minilm, read_folder
from twoshift.runtime.encoder.generic import load_generic_encoder
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load

torch, transformers, sentence_transformers, tokenizers = (
    pytest.importorskip(name, reason=f"the reference needs {name}")
    for name in ("torch", "transformers", "sentence_transformers", "tokenizers")
)
st_modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
pytest.importorskip("onnx", reason="the encoder extra is not installed")

COSINE = 0.99999
ENGLISH = "the quick brown fox jumps over the lazy dog and runs away from the old stone house by the river"
TEXTS = [
    ENGLISH,
    "Hello, World! A second text; with CASE and punctuation...",
    "Привет мир, это русский текст",
    "你好世界，这是一个中文句子",
    "こんにちは世界",
    "مرحبا بالعالم",
    "café naïve Ångström",
    "🙂 emoji 🚀🚀 👩‍👩‍👧 in a text",
    "",
    "   \t\n  ",
    "a",
    "[PAD] <pad> spelled out",
    ENGLISH * 40,
    "short again",
]
PAIRS = [(text, other) for text, other in zip(TEXTS, reversed(TEXTS), strict=True)]
LIBRARIES = ("openvino", "onnxruntime")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return request.param


def make_tokenizer(style: str) -> Any:
    """A small byte-level tokenizer with the special tokens and the template of a family."""
    bert = style in ("bert", "modernbert")
    cls, sep, pad, unk = ("[CLS]", "[SEP]", "[PAD]", "[UNK]") if bert else ("<s>", "</s>", "<pad>", "<unk>")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=unk))
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [pad, cls, sep, unk, "[MASK]"] if bert else [cls, pad, sep, unk, "[MASK]"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS, tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    second = "$B:1" if bert else f"{sep}:0 $B:0"
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 {second} {sep}:{1 if bert else 0}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    # As a real folder's file would: its own truncation and padding are not what the model is run with
    tokenizer.enable_padding(length=16, pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    tokenizer.enable_truncation(16)
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if style == "bert" else [])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=cls, sep_token=sep, pad_token=pad, unk_token=unk,
        model_max_length=64, model_input_names=names,
    )  # fmt: skip


def make_config(style: str, **more: Any) -> Any:
    sizes = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "initializer_range": 0.4, **more}
    match style:
        case "bert":
            return transformers.BertConfig(max_position_embeddings=64, pad_token_id=0, **sizes)
        case "roberta":
            return transformers.RobertaConfig(max_position_embeddings=66, pad_token_id=1, **sizes)
        case "xlm-roberta":
            return transformers.XLMRobertaConfig(max_position_embeddings=66, pad_token_id=1, **sizes)
        case "mpnet":
            return transformers.MPNetConfig(max_position_embeddings=66, pad_token_id=1, **sizes)
        case "modernbert":
            ids = {"pad_token_id": 0, "cls_token_id": 1, "bos_token_id": 1, "sep_token_id": 2, "eos_token_id": 2}
            return transformers.ModernBertConfig(max_position_embeddings=64, local_attention=8, **ids, **sizes)
        case "distilbert":
            small = {"vocab_size": 400, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
            return transformers.DistilBertConfig(max_position_embeddings=64, pad_token_id=1, **small, **more)
    raise AssertionError(style)


def make_folder(path: Path, style: str, kind: str = "AutoModel", **more: Any) -> Path:
    """A tiny model with random weights, saved as transformers does; biases and norms are random too."""
    torch.manual_seed(7)
    model = getattr(transformers, kind).from_config(make_config(style, **more))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.3 + ("weight" in name))
    model.eval().save_pretrained(path)
    make_tokenizer(style).save_pretrained(path)
    return path


def load(path: Path, library: str, home: Path, threads: int = 1) -> Runtime:
    return load_onnx_encoder(read_folder(path), str(path), threads, library, home)


def answers(runtime: Runtime, rows: list[Any], column: str) -> NDArray[np.float32]:
    return np.asarray(runtime.launch([runtime.prepare(rows)]).wait()[column])


def assert_same(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    assert ours.shape == theirs.shape
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    cosines = (a * b).sum(axis=-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    assert cosines.min() >= COSINE, cosines
    # Random networks have answers that are all alike, so the direction alone would say little
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-4 * np.abs(b).max())


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
    kind = "AutoModelForSequenceClassification"
    folder = make_folder(tmp_path / "model", style, kind, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    ours = answers(load(folder, library, tmp_path / "home"), PAIRS, "score")
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert ours.std() > 0.01


def test_a_saved_cross_encoder_keeps_its_own_activation(library: str, tmp_path: Path) -> None:
    kind = "AutoModelForSequenceClassification"
    folder = make_folder(tmp_path / "bare", "bert", kind, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    theirs.save_pretrained(str(tmp_path / "model"))
    ours = answers(load(tmp_path / "model", library, tmp_path / "home"), PAIRS, "score")
    np.testing.assert_allclose(ours, theirs.predict(PAIRS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("style", ["bert", "xlm-roberta", "mpnet", "modernbert"])
def test_a_classifier_gives_labels_and_scores_as_transformers_does(style: str, library: str, tmp_path: Path) -> None:
    names = {0: "no", 1: "maybe", 2: "yes"}
    kind = "AutoModelForSequenceClassification"
    folder = make_folder(tmp_path / "model", style, kind, num_labels=3, id2label=names)
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
    folder = make_folder(tmp_path / "model", "distilbert", "AutoModelForSequenceClassification", num_labels=1)
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
