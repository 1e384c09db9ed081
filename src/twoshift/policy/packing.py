"""Divides items into calls by tokens: least padding, fewest calls, within the caps."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput, TooLarge

__all__ = ["PackLimits", "PackedCalls", "pack"]


@dataclass(frozen=True, slots=True)
class PackLimits:
    """Limits of one call. The tokens of a padded call are rows x longest; of a packed call, the sum."""

    max_tokens: int
    max_rows: int = 1_000_000
    padded: bool = False
    max_waste: float = 0.03  # padding as a share of the call, where it is padded

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidInput("max_tokens", self.max_tokens, "at least 1")
        if self.max_rows < 1:
            raise InvalidInput("max_rows", self.max_rows, "at least 1")
        if not 0 <= self.max_waste <= 1:
            raise InvalidInput("max_waste", self.max_waste, "a share from 0 to 1")


@dataclass(frozen=True, slots=True)
class PackedCalls:
    """Items divided into calls. `order[edges[k]:edges[k+1]]` are the input positions of the k-th call."""

    order: NDArray[np.int64]
    edges: tuple[int, ...]
    tokens: int  # what the items hold
    run_tokens: int  # what the device processes, padding included

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self.order[a:b] for a, b in itertools.pairwise(self.edges))

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def padding_waste(self) -> float:
        """Share of the processed tokens that are padding."""
        return 1.0 - self.tokens / self.run_tokens if self.run_tokens else 0.0


def pack(lengths: Sequence[int] | NDArray[np.int64], limits: PackLimits) -> PackedCalls:
    """Sort by length, longest first, and cut where a cap or the padding bound is met.

    Longest first, so that a call that does not fit the memory fails at the start and not after hours.
    Raises TooLarge if an item alone is over the cap.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) == 0:
        return PackedCalls(np.empty(0, np.int64), (0,), 0, 0)
    if sizes.min() < 1:
        raise InvalidInput("lengths", int(sizes.min()), "at least 1 token per item")
    if sizes.max() > limits.max_tokens:
        raise TooLarge("lengths", int(sizes.max()), f"at most {limits.max_tokens} tokens per item")
    order = np.argsort(-sizes, kind="stable")
    ranked = sizes[order]
    total = np.concatenate([[0], np.cumsum(ranked)])
    edges = [0]
    while edges[-1] < len(ranked):
        edges.append(_cut(ranked, total, edges[-1], limits))
    run_tokens = int(total[-1])
    if limits.padded:
        run_tokens = sum(int(ranked[a]) * (b - a) for a, b in itertools.pairwise(edges))
    return PackedCalls(order, tuple(edges), int(total[-1]), run_tokens)


def _cut(ranked: NDArray[np.int64], total: NDArray[np.int64], start: int, limits: PackLimits) -> int:
    """End of the call that begins at `start`."""
    end = min(len(ranked), start + limits.max_rows)
    if not limits.padded:
        full = int(total[start]) + limits.max_tokens
        return min(end, bisect.bisect_right(total, full) - 1)
    longest = int(ranked[start])
    end = min(end, start + limits.max_tokens // longest)
    # Lengths fall from here on, so waste only grows with the call: the last row within bound ends it.
    low, high = start + 1, end
    while low < high:
        middle = (low + high + 1) // 2
        held = int(total[middle] - total[start])
        if held >= (1.0 - limits.max_waste) * longest * (middle - start):
            low = middle
        else:
            high = middle - 1
    return low
