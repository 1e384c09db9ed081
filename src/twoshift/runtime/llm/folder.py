"""A language model's folder in the Hugging Face layout, as frozen values; nothing in it is run."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, InvalidInput
from twoshift.runtime.artifacts import checksum_of_bytes, checksum_of_files

__all__ = ["LlmFolder", "is_llm_folder", "read_llm_folder", "tensor_shapes"]

_GENERATES = "ForCausalLM"
_SMALL_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
_TEMPLATE = "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class LlmFolder:
    """What decides an answer, and what it takes of a device's memory."""

    path: Path
    checksum: str
    context_tokens: int  # that the model was made for
    params: int
    layers: int
    kv_heads: int
    head_dim: int
    quantisation: str | None = None  # how its weights are quantised, as its config names it: awq, gptq ...


def is_llm_folder(path: Path) -> bool:
    """Whether its config names a model that generates, and nothing says that it embeds."""
    if (path / "modules.json").is_file():
        return False
    try:
        config = json.loads((path / "config.json").read_bytes())
        return any(str(name).endswith(_GENERATES) for name in config["architectures"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_llm_folder(path: Path) -> LlmFolder:
    """Read and check a folder; raises InvalidInput with what is missing, Broken where a file is damaged."""
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise InvalidInput("model", str(path), "a folder with the weights as .safetensors files")
    if not (path / "tokenizer.json").is_file():
        raise InvalidInput("model", str(path), "a model folder with tokenizer.json in it (the fast tokenizer's file)")
    config, quantisation = _config(path / "config.json")
    heads = int(config["num_attention_heads"])
    files = [path / name for name in (*_SMALL_FILES, _TEMPLATE)]
    lines = [f"{checksum_of_files([file])} {file.name}" for file in files if file.is_file()]
    return LlmFolder(
        path=path,
        checksum=checksum_of_bytes("\n".join([checksum_of_files(weights), *lines]).encode()),
        context_tokens=int(config["max_position_embeddings"]),
        params=sum(math.prod(shape) for file in weights for shape in tensor_shapes(file).values()),
        layers=int(config["num_hidden_layers"]),
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        quantisation=quantisation,
    )


def _config(path: Path) -> tuple[dict[str, Any], str | None]:
    """The model's own part, and how its weights are quantised."""
    try:
        config = json.loads(path.read_bytes())
        inner = config.get("text_config", config)
        for name in ("max_position_embeddings", "num_hidden_layers", "num_attention_heads", "hidden_size"):
            int(inner[name])
        told = config.get("quantization_config") or inner.get("quantization_config")
        quantisation = None if told is None else str(told["quant_method"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Broken(f"{path} cannot be read as a language model's config ({error!r})") from error
    return inner, quantisation


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Of one file, from its header; raises Broken."""
    try:
        with file.open("rb") as opened:
            (size,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(size))
        return {name: tuple(map(int, each["shape"])) for name, each in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise Broken(f"{file} cannot be read as a safetensors file ({error!r}); copy the file again") from error
