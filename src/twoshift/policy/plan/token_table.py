"""Tokens per second and their price by the number of concurrent sequences, with KV cache limit and roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twoshift.errors import InvalidInput
from twoshift.policy.plan.generation import Conversation, GenerationRate, generation_rate
from twoshift.policy.plan.memory import KvShape
from twoshift.policy.plan.roofline import Device, call_work, plan_roofline
from twoshift.policy.plan.row import Curve
from twoshift.policy.plan.table import doublings
from twoshift.policy.plan.token_prices import token_prices
from twoshift.types import CallSize

__all__ = ["RooflineCurve", "TokenRow", "together", "token_row", "token_table"]


@dataclass(frozen=True, slots=True)
class RooflineCurve:
    """A Curve of lower bounds: no step of this model is faster on such devices."""

    device: Device
    params: float
    weight_bytes: float  # of a parameter
    kv: KvShape
    context_tokens: float  # that a sequence reads in a step, on average
    precision: str = "bf16"

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Of a step: weights are read once, and the KV cache of each sequence."""
        return plan_roofline(self.device, *self._work(size), self.precision).seconds

    def bound(self, row: TokenRow) -> str:
        """What holds the mean step up: memory or compute."""
        tokens = max(1, round((row.output_tokens_per_s + row.prompt_tokens_per_s) * row.tpot_s))
        size = CallSize(row.sequences, tokens, 1, tokens)
        return plan_roofline(self.device, *self._work(size), self.precision).bound

    def _work(self, size: CallSize) -> tuple[float, float]:
        kv_bytes = size.rows * self.context_tokens * self.kv.token_bytes
        return call_work(self.params, self.weight_bytes, size.tokens, kv_bytes)


def together(device: Device, devices: int) -> Device:
    """Several that share a model, as one: an ideal, because what they say to each other takes time, too."""
    if devices < 1:
        raise InvalidInput("devices", devices, "at least 1")
    scaled = {
        name: value * devices
        for name in ("tflops", "bandwidth_bytes_per_s", "memory_bytes", "tflops_int8", "tflops_fp8", "tflops_fp32")
        if (value := getattr(device, name)) is not None
    }
    return device if devices == 1 else replace(device, name=f"{devices} x {device.name}", **scaled)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Rate and price of this many concurrent sequences."""

    sequences: int
    kv_tokens: float  # that they hold when their answers are whole
    tpot_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    usd_per_million_output: float
    usd_per_million_input: float


def token_row(rate: GenerationRate, asked: Conversation, usd_per_hour: float) -> TokenRow:
    """A rate with its price."""
    usd, read = usd_per_hour / 3600 / rate.answers_per_s, asked.prompt_tokens + asked.cached_tokens
    prices = token_prices(usd, rate.output_share, read, asked.answer_tokens)
    return TokenRow(
        rate.sequences,
        rate.sequences * asked.tokens,
        rate.tpot_s,
        rate.output_tokens_per_s,
        rate.prompt_tokens_per_s,
        prices.output or 0.0,
        prices.input or 0.0,
    )


def token_table(
    curve: Curve, asked: Conversation, largest: int, step_tokens: int, usd_per_hour: float
) -> Sequence[TokenRow]:
    """Rows for 1, 2, 4 ... sequences, up to the largest possible number."""
    counts = sorted({*doublings(largest), largest})
    return [token_row(generation_rate(curve, asked, each, step_tokens), asked, usd_per_hour) for each in counts]
