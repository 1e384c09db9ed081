"""Tokens a second of a device: by a measured profile, or by its data sheet and the model's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twoshift.cli.output import pretty, table
from twoshift.cli.plan.curves import chosen_curve
from twoshift.cli.plan.devices import kv_shape, model_shape
from twoshift.cli.plan.token_settings import TokenSettings
from twoshift.errors import InvalidInput
from twoshift.policy.plan.memory import PRECISION_BYTES, MemoryPlan, plan_memory
from twoshift.policy.plan.roofline import DEVICES
from twoshift.policy.plan.token_table import RooflineCurve, TokenRow, together, token_table
from twoshift.units import format_bytes

__all__ = ["TokenRates", "rates_on"]

_SEQUENCES = 16  # of a profile, where nobody says how many
_MOST_SEQUENCES = 4096
_STEP_TOKENS = {"cpu": 512, "": 8192}  # by how a device's name begins; as models are loaded


@dataclass(frozen=True, slots=True)
class TokenRates:
    """By the number of sequences, the largest last."""

    rows: Sequence[TokenRow]
    bounds: Sequence[str]  # of each row: memory or compute; empty where a profile was measured
    memory: MemoryPlan | None
    words: str

    @property
    def best(self) -> TokenRow:
        """As many at once as there can be."""
        return self.rows[-1]

    def shown(self) -> Any:
        """As a table."""
        bounded = ["<bound"] if self.bounds else []
        columns = [
            "sequences",
            "KV tokens",
            *bounded,
            "ms/token",
            "output tokens/s",
            "$/M output tokens",
            "$/M input tokens",
        ]
        return table(columns, [self._cells(at, row) for at, row in enumerate(self.rows)])

    def _cells(self, at: int, row: TokenRow) -> list[str]:
        counts = [f"{row.sequences:,}", f"{row.kv_tokens:,.0f}", *self.bounds[at : at + 1]]
        prices = [pretty(row.usd_per_million_output, 3), pretty(row.usd_per_million_input, 3)]
        return [*counts, pretty(1e3 * row.tpot_s, 3), f"{row.output_tokens_per_s:,.0f}", *prices]


def rates_on(ask: TokenSettings, usd_per_hour: float) -> TokenRates:
    """Raises InvalidInput where something is missing, or nothing fits."""
    if ask.device is None:
        return _measured(ask, usd_per_hour, None)
    params, layers, kv_heads, head_dim = _sizes(ask)
    kv = kv_shape(layers, kv_heads, head_dim, ask.kv_precision, ask.devices)
    device = together(DEVICES[ask.device.lower()], ask.devices)
    memory = plan_memory(params, PRECISION_BYTES[ask.precision], kv, ask.asked.tokens, device.memory_bytes)
    if not memory.largest_batch or kv is None:
        accepted = "a larger device, or more --devices, with room for the weights and the KV cache of one sequence"
        raise InvalidInput("device", device.name, accepted)
    if ask.profile is not None:
        return _measured(ask, usd_per_hour, memory)
    read = ask.asked.prompt_tokens + ask.asked.cached_tokens + ask.asked.answer_tokens / 2
    curve = RooflineCurve(device, params, PRECISION_BYTES[ask.precision], kv, read, ask.precision)
    most = min(memory.largest_batch, ask.sequences or _MOST_SEQUENCES)
    rows = token_table(curve, ask.asked, most, ask.step_tokens or _STEP_TOKENS[""], usd_per_hour)
    words = (
        f"Estimate for {device.name} in {ask.precision} from its data sheet. {_room(memory)} The table shows the "
        "shortest possible times; `twoshift profile` measures the actual times, for --profile."
    )
    return TokenRates(rows, [curve.bound(each) for each in rows], memory, words)


def _measured(ask: TokenSettings, usd_per_hour: float, memory: MemoryPlan | None) -> TokenRates:
    found = chosen_curve(None, None, ask.profile, None)
    most = ask.sequences or _SEQUENCES
    room = "" if memory is None else f" {_room(memory)}"
    if memory is not None and memory.largest_batch is not None:
        most = min(most, memory.largest_batch)
    begins = next(begin for begin in _STEP_TOKENS if found.device.startswith(begin))
    step_tokens = ask.step_tokens or _STEP_TOKENS[begins]
    rows = token_table(found.cost, ask.asked, most, step_tokens, usd_per_hour)
    several = f"{most:,} sequence{'' if most == 1 else 's'} at once (--sequences)"
    mixed = f"prompts of {ask.asked.prompt_tokens:,.0f} tokens and answers of {ask.asked.answer_tokens:,.0f} tokens"
    rate = f"{pretty(rows[-1].output_tokens_per_s, 3)} output tokens per second"
    return TokenRates(rows, [], memory, f"{ask.profile}: {several}, {mixed}: {rate}.{room}")


def _sizes(ask: TokenSettings) -> tuple[float, int | None, int | None, int | None]:
    if ask.model is not None:
        return model_shape(ask.model, ask.params, ask.layers, ask.kv_heads, ask.head_dim)
    if ask.params is None or ask.layers is None:
        raise InvalidInput("model", None, "a language model, or --params, --layers, --kv-heads and --head-dim")
    return ask.params, ask.layers, ask.kv_heads, ask.head_dim


def _room(memory: MemoryPlan) -> str:
    return (
        f"Beside {format_bytes(memory.weights_bytes)} of weights, {memory.largest_tokens or 0:,} tokens of KV cache "
        f"fit, enough for {memory.largest_batch or 0:,} such sequences at once."
    )
