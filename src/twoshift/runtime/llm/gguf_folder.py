"""A GGUF file of the Llama family as a Hugging Face folder: weights, config, tokenizer, chat template."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.runtime.companions import needed_transformers

__all__ = ["write_folder"]

_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PERMUTED = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}  # llama.cpp pairs their rows


def write_folder(gguf: Path, folder: Path) -> None:
    """Dequantised to bf16 and written into an empty folder; raises InvalidInput for another family, Broken."""
    reader = needed("gguf", "vllm", str(gguf)).GGUFReader(gguf)
    fields = _Fields(reader)
    if fields.text("general.architecture") != "llama":
        raise InvalidInput("model", str(gguf), "a GGUF file of the Llama family")
    _write_weights(reader, fields, folder / "model.safetensors")
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    _write_text(folder / "config.json", json.dumps(_config(fields, tied), indent=2))
    _write_tokenizer(gguf, folder)
    _write_text(folder / "generation_config.json", json.dumps({"eos_token_id": fields.number("eos_token_id")}))


class _Fields:
    """What a GGUF file says about its model."""

    def __init__(self, reader: Any) -> None:
        self._fields = reader.fields

    def number(self, name: str) -> Any:
        """By its name in the family, or of the tokenizer."""
        for known in (f"llama.{name}", f"tokenizer.ggml.{name}"):
            if known in self._fields:
                return self._fields[known].contents()
        raise Broken(f"the GGUF file has no value {name!r}; convert the model to GGUF again")

    def text(self, name: str) -> str:
        """By its whole name; empty where there is none."""
        return str(self._fields[name].contents()) if name in self._fields else ""

    @property
    def vocabulary(self) -> int:
        """Its size."""
        return len(self._fields["tokenizer.ggml.tokens"].data)


def _config(fields: _Fields, tied: bool) -> dict[str, Any]:
    heads, width = fields.number("attention.head_count"), fields.number("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": fields.number("feed_forward_length"),
        "num_hidden_layers": fields.number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.number("attention.head_count_kv"),
        "head_dim": width // heads,
        "max_position_embeddings": fields.number("context_length"),
        "rms_norm_eps": round(fields.number("attention.layer_norm_rms_epsilon"), 12),
        "rope_theta": fields.number("rope.freq_base"),
        "vocab_size": fields.vocabulary,
        "bos_token_id": fields.number("bos_token_id"),
        "eos_token_id": fields.number("eos_token_id"),
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
    }


def _write_weights(reader: Any, fields: _Fields, path: Path) -> None:
    from safetensors.torch import save_file

    save_file(dict(_tensors(reader, fields)), path, metadata={"format": "pt"})
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _tensors(reader: Any, fields: _Fields) -> Iterator[tuple[str, Any]]:
    import torch
    from gguf.quants import dequantize

    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        kind, name = _named(tensor.name)
        if kind in _PERMUTED:
            heads = fields.number(_PERMUTED[kind])
            pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        yield name, torch.from_numpy(values.copy()).to(torch.bfloat16).contiguous()


def _named(name: str) -> tuple[str, str]:
    """A tensor's kind, and its name in a Hugging Face folder."""
    kind = name.removesuffix(".weight")
    if kind in _OUTER:
        return kind, f"{_OUTER[kind]}.weight"
    block, number, kind = [*kind.split("."), "", ""][:3]
    if block != "blk" or kind not in _TENSORS:
        raise InvalidInput("model", name, "a GGUF file in which all tensors belong to the Llama family")
    return kind, f"model.layers.{number}.{_TENSORS[kind]}.weight"


def _write_tokenizer(gguf: Path, folder: Path) -> None:
    transformers = needed_transformers("vllm", str(gguf))
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(folder)


def _write_text(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
