"""Attention within each row of a packed call."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from twoshift.runtime.encoder.cuda.rows import PackedRows

__all__ = ["ANY_DISTANCE", "Window", "attend"]

Window = tuple[int, int]  # how far a token sees back and ahead
ANY_DISTANCE: Window = (-1, -1)


def attend(
    query: Tensor, key: Tensor, value: Tensor, rows: PackedRows, scale: float | None = None,
    window: Window = ANY_DISTANCE,
) -> Tensor:  # fmt: skip
    """[tokens, heads, width] each -> the same; a token sees its own row alone."""
    starts, longest = rows.starts, rows.longest
    result = varlen_attn(query, key, value, starts, starts, longest, longest, scale=scale, window_size=window)
    assert isinstance(result, Tensor)  # noqa: S101 - nothing more was asked for
    return result
