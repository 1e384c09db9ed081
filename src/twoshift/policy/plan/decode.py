"""Output tokens per second of a language model, from its measured steps."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.plan.row import Curve
from twoshift.types import CallSize

__all__ = ["DecodeRate", "decode_rate", "decode_within"]

_MOST_SEQUENCES = 4096


@dataclass(frozen=True, slots=True)
class DecodeRate:
    """Decode rate of several sequences that each get one token per step."""

    sequences: int
    step_s: float  # which is the time of an output token, too

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of all sequences together."""
        return self.sequences / self.step_s


def decode_rate(cost: Curve, sequences: int, quantile: float = 0.5) -> DecodeRate:
    """Decode rate of this many concurrent sequences."""
    return DecodeRate(sequences, cost.seconds(CallSize.uniform(sequences), quantile))


def decode_within(cost: Curve, tpot_s: float, quantile: float = 0.9, most: int = _MOST_SEQUENCES) -> DecodeRate:
    """The most sequences that keep this time per output token; raises InvalidInput if one sequence exceeds it."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if decode_rate(cost, middle, quantile).step_s <= tpot_s:
            low = middle
        else:
            high = middle - 1
    if not low:
        alone = decode_rate(cost, 1, quantile).step_s
        raise InvalidInput(
            "tpot_ms",
            round(1e3 * tpot_s, 3),
            f"a number of at least {1e3 * alone:.3g}; a single sequence takes this many milliseconds per token",
        )
    return decode_rate(cost, low, quantile)
