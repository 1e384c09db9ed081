"""How a call lies in its buffer, and the size classes that small calls are filled up to."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twoshift.runtime.encoder.cuda.rows import PackedRows
from twoshift.runtime.encoder.tokens import TokenRows

__all__ = ["CallShape", "Model", "coarse_class", "coarse_classes", "fine_class"]

_TOKEN_CLASSES = (16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192)
_ROW_CLASSES = (1, 4, 16, 64, 256)  # an empty row costs blocks of the attention kernel
_FEWEST_ROW_TOKENS, _MOST_ROW_TOKENS = 4, 512  # calls of shorter and longer rows have no class of their own
_FINE_ABOVE, _FINE_BELOW, _FINE_STEPS = 1024, 32_768, 32
_ATTENTION_TOKENS = 128  # of a row, which the attention kernel takes at once


class Model(Protocol):
    """A network with its head."""

    def __call__(self, ids: Tensor, rows: PackedRows, types: Tensor | None) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class CallShape:
    """A buffer of ids, starts and, where the model asks for them, types; int32 all."""

    tokens: int
    rows: int
    longest: int  # row that it may hold
    typed: bool

    @property
    def words(self) -> int:
        """The buffer's size."""
        return self.tokens * (2 if self.typed else 1) + self.rows + 1

    def fill(self, buffer: NDArray[np.int32], parts: Sequence[TokenRows]) -> None:
        """Write the rows of all parts; what is left is token 0 and empty rows."""
        starts = buffer[self.tokens : self.tokens + self.rows + 1]
        types = buffer[self.tokens + self.rows + 1 :]
        starts[0] = token = row = 0
        for part in parts:
            first, last = int(part.offsets[0]), int(part.offsets[-1])
            end = token + last - first
            buffer[token:end] = part.ids[first:last]
            starts[row + 1 : row + 1 + len(part)] = part.offsets[1:] + (token - first)
            if self.typed:
                types[token:end] = 0 if part.type_ids is None else part.type_ids[first:last]
            token, row = end, row + len(part)
        starts[row + 1 :] = token
        buffer[token : self.tokens] = 0
        types[token:] = 0

    def run(self, model: Model, buffer: Tensor) -> Tensor:
        """The model over such a buffer on the device."""
        ids, starts = buffer[: self.tokens], buffer[self.tokens : self.tokens + self.rows + 1]
        types = buffer[self.tokens + self.rows + 1 :] if self.typed else None
        return model(ids, PackedRows.of(starts, self.tokens, self.longest), types)


def coarse_classes(longest: int, typed: bool) -> Iterator[CallShape]:
    """The classes that are recorded beforehand, the largest first: the others fit into its memory."""
    for tokens in reversed(_TOKEN_CLASSES):
        for rows in _ROW_CLASSES:
            if _fewest_tokens(rows) <= tokens <= max(_TOKEN_CLASSES[0], rows * min(longest, _MOST_ROW_TOKENS)):
                yield CallShape(tokens, rows, min(tokens, longest), typed)


def coarse_class(call: CallShape, longest: int) -> CallShape:
    """The smallest of those that holds the call; the call itself where none does."""
    rows = next((rows for rows in _ROW_CLASSES if rows >= call.rows), 0)
    by_tokens = bisect.bisect_left(_TOKEN_CLASSES, max(call.tokens, _fewest_tokens(rows)))
    if not rows or by_tokens == len(_TOKEN_CLASSES):
        return call
    tokens = _TOKEN_CLASSES[by_tokens]
    return CallShape(tokens, rows, min(tokens, longest), call.typed)


def fine_class(call: CallShape, longest: int) -> CallShape | None:
    """A class with at most a 32nd to fill up; None for a call that needs none."""
    if not _FINE_ABOVE < call.tokens <= _FINE_BELOW:
        return None
    step = _power_of_2(call.tokens) // (2 * _FINE_STEPS)
    seen = min(longest, max(_ATTENTION_TOKENS, _power_of_2(call.longest)))
    return CallShape(-(-call.tokens // step) * step, _power_of_2(call.rows), seen, call.typed)


def _fewest_tokens(rows: int) -> int:
    return 1 if rows <= 1 else rows * _FEWEST_ROW_TOKENS


def _power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()
