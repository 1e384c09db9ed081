"""Tiny random models, saved as the reference libraries save them, and what their answers are compared with."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.ports import Runtime

os.environ["HF_HUB_OFFLINE"] = "1"

torch, transformers, sentence_transformers, tokenizers = (
    pytest.importorskip(name, reason=f"the reference needs {name}")
    for name in ("torch", "transformers", "sentence_transformers", "tokenizers")
)
st_modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
onnx = pytest.importorskip("onnx", reason="the encoder extra is not installed")

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
CLASSIFIER = "AutoModelForSequenceClassification"


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


def answers(runtime: Runtime, rows: list[Any], column: str) -> NDArray[np.float32]:
    return np.asarray(runtime.launch([runtime.prepare(rows)]).wait()[column])


def assert_same(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    assert ours.shape == theirs.shape
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    cosines = (a * b).sum(axis=-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    assert cosines.min() >= COSINE, cosines
    # Random networks have answers that are all alike, so the direction alone would say little
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-4 * np.abs(b).max())
