"""How a language model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LlmOptions"]


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """How a language model is loaded; None: what suits the device."""

    device: str = "auto"
    precision: str | None = None
    threads: int | None = None
    context_tokens: int | None = None
    kv_bytes: int | None = None
    step_tokens: int | None = None  # that one step reads or generates at most
    max_sequences: int | None = None
    tool_parser: str | None = None  # vLLM's name of it; None: calls are read only where they are forced
    adapters: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)  # folders of LoRA adapters, by name
    compiled: bool | None = None  # None: on a GPU; on a CPU it takes minutes to load, and gains little
    tensor_parallel: int = 1  # GPUs that share the model
    batch_invariant: bool = False  # the same answer in every batch, as far as vLLM has that
