"""What follows from a language model's curve and its objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from twoshift.engine.llm import LlmObjective
from twoshift.errors import InvalidInput
from twoshift.generation import TokenUsage
from twoshift.llm_ports import LlmShape
from twoshift.policy.cost import CallCost
from twoshift.policy.llm_admission import LlmAdmissionPolicy
from twoshift.policy.plan.generation import Conversation, fitting_sequences, generation_rate
from twoshift.policy.plan.row import Curve
from twoshift.types import CallSize

__all__ = ["LlmDerived", "can_keep", "derive_llm", "objective_for", "typical_request"]

_QUANTILE = 0.9  # as the lane policies predict
_TTFT_S, _TPOT_S = 2.0, 0.1  # where nothing is said and the device is fast enough
_TYPICAL = Conversation(256, 128)  # as long as no requests were seen
_FEW_REQUESTS = 16
_STEPS = 2.0  # that a default objective leaves at least: nobody can promise what one step takes


@dataclass(frozen=True, slots=True)
class LlmDerived:
    """Shown to people, and by GET /v1/derived/{model}."""

    ttft_s: float
    tpot_s: float
    one_token_s: float  # a step of one sequence
    sequences: int  # that a step takes one token further within the objective
    output_tokens_per_s: float  # of such requests at once, prompts read in the same steps; streamed as the latest were
    request_prompt_tokens: float  # of a typical request, without what is in the cache: of the latest, or a guess
    request_answer_tokens: float
    prompt_tokens: int  # the longest that has its first token within the objective, with nobody else there
    context_tokens: int
    kv_tokens: int
    max_waiting: int  # requests without a first token, above which one is refused
    live_streams: int = 0  # that may run at the same time: with one more, a token would take longer than tpot_s
    streamed_tokens_per_s: float = 0.0  # the same, where every answer is streamed
    live_slowdown: float | None = None  # that jobs may cause, as it was set; none: only the objectives bound them

    @property
    def slo_s(self) -> float:
        """Of what a client waits for first."""
        return self.ttft_s

    @property
    def row_tokens(self) -> float:
        """Of an answer."""
        return self.request_answer_tokens

    @property
    def capacity_rows_per_s(self) -> float:
        """Of such sequences."""
        return self.output_tokens_per_s / self.row_tokens

    def with_host(self, _request_s: float, _rows_per_request: float) -> LlmDerived:
        """The same: what a request costs the host is little beside its steps."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def can_keep(cost: CallCost, ttft_s: float | None, tpot_s: float | None) -> bool:
    """Whether a device with this curve can keep what was given."""
    return all(given is None or given >= _least_s(cost) for given in (ttft_s, tpot_s))


def objective_for(cost: CallCost, ttft_s: float | None, tpot_s: float | None, max_waiting: int | None) -> LlmObjective:
    """As it was given, or as this device can keep it; raises InvalidInput where it cannot keep what was given."""
    least_s = _least_s(cost)
    for name, given in (("ttft_ms", ttft_s), ("tpot_ms", tpot_s)):
        if given is not None and given < least_s:
            least_ms = math.ceil(1e3 * least_s)
            accepted = f"at least {least_ms} ms: on this device, 90 % of the engine steps take up to {least_ms} ms"
            raise InvalidInput(name, f"{1e3 * given:g}", accepted)
    tpot_s = tpot_s or max(_TPOT_S, _STEPS * least_s)
    ttft_s = ttft_s or max(_TTFT_S, _STEPS * tpot_s)
    few = {} if max_waiting is None else {"max_waiting": max_waiting}
    return LlmObjective(ttft_s=ttft_s, tpot_s=tpot_s, **few)


def typical_request(recent: Sequence[TokenUsage], context_tokens: int) -> Conversation:
    """The mean of the latest ones; a guess where there are few."""
    if len(recent) < _FEW_REQUESTS:
        share = min(1.0, context_tokens / _TYPICAL.tokens)
        return Conversation(max(1.0, share * _TYPICAL.prompt_tokens), max(1.0, share * _TYPICAL.answer_tokens))
    cached = fmean(each.cached_tokens for each in recent)
    read = fmean(each.prompt_tokens for each in recent) - cached
    return Conversation(max(1.0, read), max(1.0, fmean(each.completion_tokens for each in recent)), cached)


def derive_llm(
    cost: Curve,
    objective: LlmObjective,
    shape: LlmShape,
    recent: Sequence[TokenUsage] = (),
    more_stream_s: float = 0.0,
) -> LlmDerived:
    """Everything that a user might otherwise have had to set.

    `more_stream_s` is what a token would take longer if every answer were streamed.
    """

    def step_s(rows: int) -> float:
        return cost.seconds(CallSize.uniform(rows), _QUANTILE)

    rows = _largest(shape.max_sequences, lambda count: step_s(count) <= objective.tpot_s)
    asked = typical_request(recent, shape.context_tokens)
    streams = LlmAdmissionPolicy(objective.bounds(shape)).live_streams(cost)  # all, where not even one keeps TPOT
    inside = min(streams, fitting_sequences(shape.kv_tokens, asked, shape.max_sequences))
    rate = generation_rate(cost, asked, inside, shape.step_tokens).output_tokens_per_s
    return LlmDerived(
        ttft_s=objective.ttft_s,
        tpot_s=objective.tpot_s,
        one_token_s=step_s(1),
        sequences=rows,
        output_tokens_per_s=rate,
        request_prompt_tokens=asked.prompt_tokens,
        request_answer_tokens=asked.answer_tokens,
        prompt_tokens=_longest_prompt(cost, shape, objective.ttft_s),
        context_tokens=shape.context_tokens,
        kv_tokens=shape.kv_tokens,
        max_waiting=objective.max_waiting,
        live_streams=streams,
        streamed_tokens_per_s=1 / (1 / rate + more_stream_s),
        live_slowdown=objective.live_slowdown,
    )


def _longest_prompt(cost: Curve, shape: LlmShape, ttft_s: float) -> int:
    full_s = cost.seconds(CallSize.of([shape.step_tokens]), _QUANTILE)

    def prompt_s(tokens: int) -> float:
        full, rest = divmod(tokens, shape.step_tokens)
        return full * full_s + (cost.seconds(CallSize.of([rest]), _QUANTILE) if rest else 0.0)

    return _largest(shape.context_tokens - 1, lambda tokens: prompt_s(tokens) <= ttft_s)


def _least_s(cost: CallCost) -> float:
    return cost.seconds(CallSize.uniform(1), _QUANTILE)


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` for which it holds, where it holds for all below; at least 1."""
    least = 1
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if holds(middle) else (least, middle - 1)
    return max(1, least)
