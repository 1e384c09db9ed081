"""LoRA adapters of random weights, as PEFT saves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twoshift.runtime.llm.folder import tensor_shapes

__all__ = ["write_adapter"]


def write_adapter(
    path: Path,
    base: Path,
    seed: int = 0,
    rank: int = 4,
    strength: float = 1.0,
    modules: Sequence[str] = ("q_proj", "v_proj"),
    **config: Any,
) -> Path:
    """An adapter of the base's modules of those names; strong enough to be told from the base."""
    from safetensors.numpy import save_file

    random, tensors = np.random.default_rng(seed), dict[str, Any]()
    shapes = {name: shape for file in base.glob("*.safetensors") for name, shape in tensor_shapes(file).items()}
    for name in sorted(shapes):
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in modules:
            outputs, inputs = shapes[name]
            down = random.standard_normal((rank, inputs)) / inputs**0.5
            up = strength * random.standard_normal((outputs, rank))
            tensors[f"base_model.model.{module}.lora_A.weight"] = down.astype(np.float32)
            tensors[f"base_model.model.{module}.lora_B.weight"] = up.astype(np.float32)
    path.mkdir(parents=True)
    save_file(tensors, path / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": list(modules), "bias": "none"}
    (path / "adapter_config.json").write_text(json.dumps({**told, **config}))
    return path
