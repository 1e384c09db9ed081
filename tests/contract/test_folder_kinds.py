"""Folders are what their files say they are: answered as the reference does, or refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import (
    CLASSIFIER,
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

from twoshift.errors import UnusableModel
from twoshift.ports import Runtime
from twoshift.runtime import load_model
from twoshift.runtime.encoder.folder import read_folder
from twoshift.runtime.encoder.generic import load_generic_encoder
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
safetensors_torch = pytest.importorskip("safetensors.torch")
Load = Callable[[Path, Path], Runtime]


def by_graph(folder: Path, home: Path) -> Runtime:
    return load_onnx_encoder(read_folder(folder), str(folder), 1, "onnxruntime", home)


def by_transformers(folder: Path, home: Path) -> Runtime:
    return load_generic_encoder(read_folder(folder), str(folder), 1)


@pytest.mark.parametrize("load", [by_graph, by_transformers])
def test_the_modules_of_sentence_transformers_run_in_their_order(load: Load, tmp_path: Path) -> None:
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")))
    gelu = st_modules.Dense(32, 24, bias=False, activation_function=torch.nn.GELU())
    norm = st_modules.LayerNorm(24)
    torch.nn.init.normal_(norm.norm.weight)
    torch.nn.init.normal_(norm.norm.bias)
    last = st_modules.Dense(24, 16, activation_function=torch.nn.Sigmoid())
    steps = [gelu, norm, st_modules.Dropout(0.5), st_modules.Normalize(), last]
    modules = [body, st_modules.Pooling(32, "mean"), *steps]
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", truncate_dim=6)
    theirs.save(str(tmp_path / "model"))
    ours = answers(load(tmp_path / "model", tmp_path / "home"), TEXTS, "embedding")
    assert ours.shape == (len(TEXTS), 6)
    assert_same(ours, theirs.encode(TEXTS))


@pytest.mark.parametrize("load", [by_graph, by_transformers])
@pytest.mark.parametrize("dim", [8, 32, 99])
def test_truncate_dim_keeps_the_first_numbers(load: Load, dim: int, tmp_path: Path) -> None:
    """Of vectors that were normed before, as Matryoshka models are saved."""
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")))
    modules = [body, st_modules.Pooling(32, "cls"), st_modules.Normalize()]
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", truncate_dim=dim)
    theirs.save(str(tmp_path / "model"))
    ours = answers(load(tmp_path / "model", tmp_path / "home"), TEXTS, "embedding")
    assert ours.shape[1] == min(dim, 32)
    assert_same(ours, np.asarray(theirs.encode(TEXTS)))


def test_a_module_that_does_not_run_here_is_refused_by_name(tmp_path: Path) -> None:
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")))
    modules = [body, st_modules.CNN(32, 16), st_modules.Pooling(48, "mean")]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    with pytest.raises(UnusableModel, match="modules CNN, Pooling"):
        read_folder(tmp_path / "model")


# What a folder is


def t5_folder(path: Path, kind: str) -> Path:
    sizes = {"vocab_size": 400, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    torch.manual_seed(7)
    getattr(transformers, kind)(transformers.T5Config(**sizes)).eval().save_pretrained(path)
    make_tokenizer("roberta").save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", ["T5EncoderModel", "T5Model"])
def test_a_t5_encoder_embeds_as_sentence_transformers_does(kind: str, tmp_path: Path) -> None:
    body = st_modules.Transformer(str(t5_folder(tmp_path / "body", kind)))
    dense = st_modules.Dense(32, 16, bias=False, activation_function=torch.nn.Identity())
    modules = [body, st_modules.Pooling(32, "mean"), dense, st_modules.Normalize()]
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    theirs.save(str(tmp_path / "model"))
    for folder in (tmp_path / "model", tmp_path / "body"):
        theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        assert_same(answers(by_transformers(folder, tmp_path), TEXTS, "embedding"), theirs.encode(TEXTS))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("AutoModelForTokenClassification", r"BertForTokenClassification\) labels tokens"),
        ("AutoModelForQuestionAnswering", r"BertForQuestionAnswering\) finds answers"),
        ("AutoModelForMultipleChoice", r"BertForMultipleChoice\) chooses among answers"),
    ],
)
def test_a_folder_of_another_task_is_refused_by_name(kind: str, told: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "bert", kind)
    with pytest.raises(UnusableModel, match=told):
        load_model(str(folder))


def test_a_generator_from_text_to_text_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnusableModel, match=r"T5ForConditionalGeneration\) generates text from text"):
        load_model(str(t5_folder(tmp_path / "model", "T5ForConditionalGeneration")))


def test_a_model_of_texts_and_images_is_refused_by_name(tmp_path: Path) -> None:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 50}, vision_config={**small, "image_size": 8, "patch_size": 4}
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path / "model")
    make_tokenizer("roberta").save_pretrained(tmp_path / "model")
    with pytest.raises(UnusableModel, match=r"embeds texts and images \(clip\)"):
        load_model(str(tmp_path / "model"))


def test_an_image_model_is_refused_by_name(tmp_path: Path) -> None:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTConfig(image_size=8, patch_size=4, **small)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "model")
    with pytest.raises(UnusableModel, match=r"is an image model \(vit\); export it to ONNX"):
        load_model(str(tmp_path / "model"))


def test_a_sparse_encoder_is_refused_by_name(tmp_path: Path) -> None:
    body = make_folder(tmp_path / "body", "bert", "AutoModelForMaskedLM")
    sentence_transformers.SparseEncoder(str(body), device="cpu").save(str(tmp_path / "model"))
    with pytest.raises(UnusableModel, match="is a sparse encoder"):
        load_model(str(tmp_path / "model"))


def test_an_adapter_is_refused_with_its_base_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "org/base"}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UnusableModel, match=r"is an adapter \(LoRA\) for org/base; merge it"):
        load_model(str(tmp_path))


def test_a_regression_over_texts_predicts_numbers(tmp_path: Path) -> None:
    for load, style in ((by_graph, "bert"), (by_graph, "modernbert"), (by_transformers, "distilbert")):
        folder = make_folder(tmp_path / style, style, CLASSIFIER, num_labels=1, problem_type="regression")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        ours = load(folder, tmp_path / "home")
        assert ours.info.outputs == ("prediction",)
        given = make_tokenizer(style)(TEXTS[:4], padding=True, truncation=True, return_tensors="pt")
        given.pop("token_type_ids", None)
        with torch.inference_mode():
            theirs = model(**given).logits[:, 0].numpy()
        np.testing.assert_allclose(answers(ours, TEXTS[:4], "prediction"), theirs, rtol=1e-3, atol=1e-4)


def test_a_cross_encoder_that_was_trained_as_a_regression_scores_pairs(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bare", "bert", CLASSIFIER, num_labels=1, problem_type="regression")
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    theirs.save_pretrained(str(tmp_path / "model"))
    ours = by_graph(tmp_path / "model", tmp_path / "home")
    np.testing.assert_allclose(answers(ours, PAIRS, "score"), theirs.predict(PAIRS), atol=2e-5)


def test_the_advice_for_a_pickle_keeps_a_classifiers_head(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "bert", CLASSIFIER, num_labels=3)
    theirs = answers(by_graph(folder, tmp_path / "home"), TEXTS[:3], "scores")
    tensors = safetensors_torch.load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnusableModel, match="is a pickle") as raised:
        load_model(str(folder))
    subprocess.run([sys.executable, "-c", str(raised.value).partition("with Python: ")[2]], check=True, timeout=300)
    np.testing.assert_allclose(answers(by_graph(folder, tmp_path / "home"), TEXTS[:3], "scores"), theirs, atol=1e-6)
