"""Dollars per million tokens, and how much each lever reduces them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from twoshift.errors import InvalidInput
from twoshift.policy.plan.row import Curve, RowSize

__all__ = [
    "QUANTISATION_SPEEDUP",
    "Lever",
    "LeverEffect",
    "TokensPlan",
    "batch_lever",
    "model_lever",
    "padding_lever",
    "plan_tokens",
    "quantisation_lever",
    "spot_lever",
]

# fp8: the most that vLLM's manual claims over bf16; int8: assumed a little less. Measure your own model.
QUANTISATION_SPEEDUP: Mapping[str, float] = MappingProxyType({"fp8": 1.6, "int8": 1.5})


@dataclass(frozen=True, slots=True)
class Lever:
    """A measure that multiplies the cost of a token by `factor`."""

    name: str
    factor: float
    why: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise InvalidInput(self.name, self.factor, "a finite factor above 0")


@dataclass(frozen=True, slots=True)
class LeverEffect:
    """The price of a million tokens with one lever, or with all of them."""

    lever: str
    factor: float
    usd_per_million_tokens: float
    saving: float  # share of the baseline; negative where the lever makes it dearer
    why: str


@dataclass(frozen=True, slots=True)
class TokensPlan:
    """The baseline, each lever alone, and all together."""

    usd_per_million_tokens: float
    tokens_per_usd: float
    tokens_per_hour: float
    levers: tuple[LeverEffect, ...]
    together: LeverEffect


def batch_lever(curve: Curve, batch_from: int, batch_to: int, row: RowSize | None = None) -> Lever:
    """A larger call divides its fixed cost among more tokens."""
    row = row or RowSize()
    before_s = curve.seconds(row.call(batch_from)) / batch_from
    after_s = curve.seconds(row.call(batch_to)) / batch_to
    return Lever("batch", after_s / before_s, f"{batch_from} to {batch_to} rows per call")


def quantisation_lever(precision: str, speedup: float | None = None) -> Lever:
    """Fewer bytes per weight: faster reads and wider arithmetic."""
    if precision not in QUANTISATION_SPEEDUP:
        raise InvalidInput("quantisation", precision, f"one of {', '.join(sorted(QUANTISATION_SPEEDUP))}")
    gain = QUANTISATION_SPEEDUP[precision] if speedup is None else speedup
    if not (math.isfinite(gain) and gain > 0):
        raise InvalidInput("quantisation_speedup", gain, "a finite number above 0")
    source = "assumed; --quantisation-speedup sets it" if speedup is None else "as given"
    return Lever("quantisation", 1 / gain, f"{precision}, {gain:g}x the tokens per second ({source})")


def model_lever(params: float, active_params: float) -> Lever:
    """A token costs 2 FLOPs per active parameter."""
    for name, value in (("params", params), ("to_params", active_params)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(name, value, "a finite number above 0")
    why = f"{2 * params / 1e9:.4g} to {2 * active_params / 1e9:.4g} GFLOPs per token"
    return Lever("model", active_params / params, why)


def padding_lever(padding_share: float) -> Lever:
    """A batch with 40 % padding wastes 40 % of its compute."""
    if not 0 <= padding_share < 1:
        raise InvalidInput("padding", padding_share, "a share of at least 0 and less than 1")
    return Lever("padding", 1 - padding_share, f"{padding_share:.0%} of the compute no longer spent on padding")


def spot_lever(discount: float) -> Lever:
    """The same machine at the spot price."""
    if not 0 <= discount < 1:
        raise InvalidInput("spot_discount", discount, "a share of at least 0 and less than 1")
    return Lever("spot", 1 - discount, f"{discount:.0%} off the hourly price")


def plan_tokens(
    tokens_per_s: float, price_usd_per_hour: float, utilisation: float = 1.0, levers: Sequence[Lever] = ()
) -> TokensPlan:
    """Dollars per million tokens: the price per hour divided by the tokens generated per hour."""
    if not (math.isfinite(tokens_per_s) and tokens_per_s > 0):
        raise InvalidInput("tokens_per_s", tokens_per_s, "a finite number above 0")
    if not (math.isfinite(price_usd_per_hour) and price_usd_per_hour > 0):
        raise InvalidInput("price", price_usd_per_hour, "a finite number of dollars above 0")
    if not 0 < utilisation <= 1:
        raise InvalidInput("utilisation", utilisation, "a share above 0 and at most 1")
    tokens_per_hour = tokens_per_s * utilisation * 3600
    base = 1e6 * price_usd_per_hour / tokens_per_hour
    product = math.prod(lever.factor for lever in levers)
    together = _effect(Lever("together", product, "all of the above"), base)
    alone = tuple(_effect(lever, base) for lever in levers)
    return TokensPlan(base, 1e6 / base, tokens_per_hour, alone, together)


def _effect(lever: Lever, base: float) -> LeverEffect:
    return LeverEffect(lever.name, lever.factor, base * lever.factor, 1 - lever.factor, lever.why)
