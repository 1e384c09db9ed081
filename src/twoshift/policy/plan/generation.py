"""What a device generates in the steady state of continuous batching: prompts are read in steps that also decode.

Every slot is taken again as soon as its answer ends. While all slots have one answer each, `sequences` prompts are
read, in chunks that fit a step beside the sequences that decode, and each answer gets a token in every further step:

    steps        = answer - 1 + chunks a prompt; more where full steps cannot hold all of those tokens
    reading      = those of them that have a chunk to read, each with its even share of the prompts' tokens
    time         = reading * cost(decoding + read) + (steps - reading) * cost(decoding)

Answers end independently of each other, so chunks fall on steps by chance: each sequence reads in a share of
`chunks / steps` of them, and `1 - (1 - chunks / steps) ** sequences` of the steps have something to read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.plan.row import Curve
from twoshift.types import CallSize

__all__ = ["Conversation", "GenerationRate", "fitting_sequences", "generation_rate", "together_s"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A typical request: tokens of its prompt that have to be read, and tokens of its answer."""

    prompt_tokens: float
    answer_tokens: float
    cached_tokens: float = 0.0  # of the prompt, beside those: in the cache already

    def __post_init__(self) -> None:
        for name, least in (("prompt_tokens", 1), ("answer_tokens", 1), ("cached_tokens", 0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise InvalidInput(name, value, f"a finite number of at least {least}")

    @property
    def tokens(self) -> float:
        """Of KV cache, when its answer is whole."""
        return self.prompt_tokens + self.cached_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class GenerationRate:
    """So many sequences at once, one after the other without a pause."""

    sequences: int
    output_tokens_per_s: float
    prompt_tokens_per_s: float  # read
    answers_per_s: float
    tpot_s: float  # the mean step: what a token of an answer takes
    output_share: float  # of the time: for tokens that are generated, where a step's time is shared out by its tokens


def fitting_sequences(kv_tokens: float, asked: Conversation, most: int, kv_mark: float = 1.0) -> int:
    """The most sequences that fit the KV cache with their whole answers; at least one."""
    return max(1, min(most, int(kv_mark * kv_tokens / asked.tokens)))


def generation_rate(
    cost: Curve, asked: Conversation, sequences: int, step_tokens: int, quantile: float = 0.5
) -> GenerationRate:
    """Prefill and decode mixed; with prompts of one token it is what decoding alone gives."""
    if sequences < 1 or step_tokens < 1:
        raise InvalidInput("sequences", sequences, "at least 1 sequence, with at least 1 token in each engine step")
    time_s, decoding_s, steps = _cycle(cost, asked, sequences, max(step_tokens, sequences), quantile)
    # Sequences of a step are rounded, which must not make it quicker than one that reads nothing
    time_s = max(time_s, asked.answer_tokens * cost.seconds(CallSize.uniform(sequences), quantile))
    return GenerationRate(
        sequences,
        output_tokens_per_s=sequences * asked.answer_tokens / time_s,
        prompt_tokens_per_s=sequences * asked.prompt_tokens / time_s,
        answers_per_s=sequences / time_s,
        tpot_s=time_s / steps,
        output_share=decoding_s / time_s,
    )


def together_s(cost: Curve, asked: Conversation, sequences: int, step_tokens: int) -> float:
    """Of so many that begin at once, on a device of their own: prompts are read in full steps, then all are decoded."""
    tokens = sequences * asked.prompt_tokens
    steps = math.ceil(tokens / step_tokens)
    read_s = steps * cost.seconds(_size(sequences / steps, tokens / steps, 0.0))
    return read_s + (asked.answer_tokens - 1) * cost.seconds(CallSize.uniform(sequences))


def _cycle(
    cost: Curve, asked: Conversation, sequences: int, step_tokens: int, quantile: float
) -> tuple[float, float, float]:
    """Seconds in which every slot has had one answer, those of them for what is decoded, and steps."""
    prompt, answer = asked.prompt_tokens, asked.answer_tokens
    chunks = math.ceil(prompt / (step_tokens - sequences + 1))
    steps = answer - 1 + chunks
    reading = steps * (1 - (1 - chunks / steps) ** sequences)
    read, decoding = sequences * prompt / reading, sequences - sequences * chunks / reading
    if round(read + decoding) > step_tokens:
        steps = reading = max(steps, sequences * (prompt + answer - 1) / step_tokens)
        decoding, read = sequences * (answer - 1) / steps, sequences * prompt / steps
    both_s = reading * cost.seconds(_size(sequences * chunks / reading, read, decoding), quantile)
    alone_s = (steps - reading) * cost.seconds(CallSize.uniform(sequences), quantile)
    return both_s + alone_s, both_s * decoding / (read + decoding) + alone_s, steps


def _size(chunks: float, read: float, decoding: float) -> CallSize:
    """A step that reads so many tokens in so many chunks, beside sequences that decode."""
    each = max(1.0, read / chunks)
    rows, tokens = max(1, round(chunks + decoding)), max(1, round(read + decoding))
    return CallSize(rows, tokens, max(1, round(each)), max(1, round(read * each + decoding)))
