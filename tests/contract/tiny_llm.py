"""A Llama of two layers with random weights, for tests that are not about what a language model says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["tiny_llama"]

_WIDTH, _LAYERS, _HEADS, _CONTEXT_TOKENS = 64, 2, 2, 2048  # 32 a head: the least that vLLM takes on a CPU
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tiny_llama(path: Path) -> Path:
    """The folder, with a token for each byte: vLLM serves it as it serves a real one, in a third of the time."""
    path.mkdir(parents=True)
    words = _write_tokenizer(path)
    _write_weights(path, words)
    sizes = {"hidden_size": _WIDTH, "intermediate_size": 2 * _WIDTH, "num_hidden_layers": _LAYERS}
    sizes |= {"num_attention_heads": _HEADS, "num_key_value_heads": _HEADS, "head_dim": _WIDTH // _HEADS}
    sizes |= {
        "max_position_embeddings": _CONTEXT_TOKENS,
        "vocab_size": len(words),
        "eos_token_id": 2,
        "bos_token_id": 0,
    }
    kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
    more = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
    (path / "config.json").write_text(json.dumps({**kind, **sizes, **more}))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    return path


def _write_tokenizer(path: Path) -> Sequence[str]:
    tokenizers: Any = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    known = {word: number for number, word in enumerate((*_SPECIAL, *letters))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(known, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(_SPECIAL))
    made.save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": _SPECIAL[0], "eos_token": _SPECIAL[2]}
    (path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": _TEMPLATE}))
    return [*known]


def _write_weights(path: Path, words: Sequence[str]) -> None:
    from safetensors.numpy import save_file

    random = np.random.default_rng(7)

    def matrix(outputs: int, inputs: int) -> Any:
        return (random.standard_normal((outputs, inputs)) / inputs**0.5).astype(np.float32)

    square, wide, narrow = (_WIDTH, _WIDTH), (2 * _WIDTH, _WIDTH), (_WIDTH, 2 * _WIDTH)
    shapes = {f"self_attn.{name}_proj": square for name in "qkvo"}
    shapes |= {"mlp.gate_proj": wide, "mlp.up_proj": wide, "mlp.down_proj": narrow}
    tensors = {
        "model.embed_tokens.weight": 8 * matrix(len(words), _WIDTH),
        "lm_head.weight": 8 * matrix(len(words), _WIDTH),
    }
    for layer in range(_LAYERS):
        for name, shape in shapes.items():
            made = tensors[f"model.layers.{layer}.{name}.weight"] = 3 * matrix(*shape)
            if name in ("self_attn.o_proj", "mlp.down_proj"):
                made[0] = 0  # the first number stays what it is at the beginning, in each token
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(_WIDTH, np.float32)
    tensors["model.norm.weight"] = np.ones(_WIDTH, np.float32)
    tensors["model.embed_tokens.weight"][:, 0] = 8
    is_shown = np.array([len(word) == 1 and "!" <= word <= "~" for word in words])
    tensors["lm_head.weight"][:, 0] = np.where(is_shown, 0, -200)  # answers are printable, and never end by themselves
    save_file(tensors, path / "model.safetensors")
