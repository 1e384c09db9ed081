"""Rows of a call end to end, as the device sees them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["PackedRows"]


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Where each row begins, and for each token its row and its place in it.

    There may be rows without tokens at the end, and tokens without a row: a call is filled up to its size class.
    """

    starts: Tensor  # int32, one more than there are rows
    row_of: Tensor  # int64 [tokens]; the number of rows for a token without one
    places: Tensor  # int32 [tokens]
    longest: int

    @classmethod
    def of(cls, starts: Tensor, tokens: int, longest: int) -> PackedRows:
        """Everything that follows from where the rows begin, worked out on the device."""
        numbers = torch.arange(tokens, dtype=torch.int32, device=starts.device)
        row_of = torch.searchsorted(starts[1:], numbers, right=True)
        return cls(starts, row_of, numbers - starts[row_of], longest)

    @property
    def rows(self) -> int:
        """Rows, with those that are empty."""
        return self.starts.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row."""
        return self.starts[1:] - self.starts[:-1]
