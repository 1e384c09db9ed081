"""A BERT of one small layer with random weights, made without PyTorch: an encoder that is quick on any machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

__all__ = ["WORDS", "make_tiny_encoder"]

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "and",
    "runs",
    "away",
    "from",
    "an",
    "old",
    "stone",
    "house",
    "by",
    "river",
]
HIDDEN, INNER, LONGEST = 32, 64, 64


def make_tiny_encoder(path: Path) -> Path:
    """The folder, as Hugging Face's libraries save one."""
    for name in ("tokenizers", "safetensors", "onnx"):
        pytest.importorskip(name)
    from safetensors.numpy import save_file

    path.mkdir()
    words = _make_tokenizer(path)
    config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": words, "hidden_size": HIDDEN}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": INNER, "hidden_act": "gelu"}
    config |= {"max_position_embeddings": LONGEST, "type_vocab_size": 2, "pad_token_id": 0, "layer_norm_eps": 1e-12}
    (path / "config.json").write_text(json.dumps(config))
    save_file(_weights(words), path / "model.safetensors")
    return path


def _make_tokenizer(path: Path) -> int:
    import tokenizers

    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": LONGEST}))
    return len(vocabulary)


def _weights(words: int) -> dict[str, np.ndarray]:
    chance, layer = np.random.default_rng(0), "encoder.layer.0"
    sizes = {
        "embeddings.word_embeddings": (words, HIDDEN),
        "embeddings.position_embeddings": (LONGEST, HIDDEN),
        "embeddings.token_type_embeddings": (2, HIDDEN),
        **{f"{layer}.attention.self.{name}": (HIDDEN, HIDDEN) for name in ("query", "key", "value")},
        f"{layer}.attention.output.dense": (HIDDEN, HIDDEN),
        f"{layer}.intermediate.dense": (INNER, HIDDEN),
        f"{layer}.output.dense": (HIDDEN, INNER),
    }
    made = {f"{name}.weight": chance.normal(0, 0.3, size).astype(np.float32) for name, size in sizes.items()}
    linear = [name for name in sizes if name.startswith(layer)]
    made |= {f"{name}.bias": np.zeros(sizes[name][0], np.float32) for name in linear}
    for name in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        made |= {f"{name}.LayerNorm.weight": np.ones(HIDDEN, np.float32)}
        made |= {f"{name}.LayerNorm.bias": np.zeros(HIDDEN, np.float32)}
    return made
