"""What fits into a device's memory: weights, KV cache, and the largest batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["PRECISION_BYTES", "KvShape", "MemoryPlan", "plan_memory"]

PRECISION_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}


@dataclass(frozen=True, slots=True)
class KvShape:
    """Size of a decoder's KV cache per token."""

    layers: int
    kv_heads: int
    head_dim: int
    element_bytes: float = 2.0

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim", "element_bytes"):
            if not getattr(self, name) > 0:
                raise InvalidInput(name, getattr(self, name), "a number above 0")

    @property
    def token_bytes(self) -> float:
        """Bytes per token: a key and a value in every layer."""
        return self.layers * self.kv_heads * self.head_dim * 2 * self.element_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of a model on a device; a field is None if it was not asked for."""

    weights_bytes: float
    kv_bytes_per_token: float | None
    kv_bytes_per_sequence: float | None
    usable_bytes: float | None
    free_bytes: float | None  # after the weights; negative where they do not fit
    fits: bool | None
    largest_batch: int | None
    largest_tokens: int | None


def plan_memory(
    params: float,
    weight_bytes: float,
    kv: KvShape | None = None,
    sequence_tokens: float = 2048,
    device_bytes: float | None = None,
    utilisation: float = 0.9,
) -> MemoryPlan:
    """Weights take parameters x bytes; the rest of the memory holds KV cache."""
    for name, value in (("params", params), ("weight_bytes", weight_bytes), ("tokens", sequence_tokens)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(name, value, "a finite number above 0")
    if not 0 < utilisation <= 1:
        raise InvalidInput("utilisation", utilisation, "a share above 0 and at most 1")
    weights = params * weight_bytes
    token_bytes = kv.token_bytes if kv else None
    sequence_bytes = kv.token_bytes * sequence_tokens if kv else None
    usable = None if device_bytes is None else device_bytes * utilisation
    free = None if usable is None else usable - weights
    fits = None if free is None else free >= 0
    batch = None if free is None or sequence_bytes is None else max(0, int(free // sequence_bytes))
    tokens = None if free is None or token_bytes is None else max(0, int(free // token_bytes))
    return MemoryPlan(weights, token_bytes, sequence_bytes, usable, free, fits, batch, tokens)
