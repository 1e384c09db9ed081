"""What an LLM engine needs of whatever runs the model, as Protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twoshift.generation import (
    FinishReason,
    GenerationParams,
    GenerationRequest,
    TokenLogprob,
    TokenUsage,
    ToolCallDelta,
)
from twoshift.ports import RuntimeInfo
from twoshift.types import CallSize

__all__ = ["Emitted", "LlmRuntime", "LlmShape", "Prompt", "Prompts", "QualityReport", "Step"]


@dataclass(frozen=True, slots=True)
class LlmShape:
    """The bounds of a model as it is loaded."""

    context_tokens: int  # prompt and answer together
    kv_tokens: int  # that the KV cache holds
    block_tokens: int  # of the KV cache: prefixes are shared in steps of these
    step_tokens: int  # that one step reads or generates at most
    max_sequences: int  # in a step
    continues: bool = True  # whether a sequence that was taken out can go on from the tokens that it has
    vocabulary: int | None = None  # token ids are below it; None: not known, as it is another server's


@dataclass(frozen=True, slots=True)
class QualityReport:
    """What a model was measured by before it was used."""

    measure: str  # in words: "exact on answers.jsonl", "agreement with bf16"
    figure: float
    at_least: float
    rows: int

    @property
    def is_passed(self) -> bool:
        """Whether it may be used; a figure that is no number is none."""
        return self.figure >= self.at_least


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request as the model sees it."""

    token_ids: tuple[int, ...]
    params: GenerationParams
    max_tokens: int  # what may be generated; fits the context with the prompt
    request: GenerationRequest | None = None  # as it was asked, where the runtime needs more of it than tokens
    begun: tuple[int, ...] = ()  # generated before it was taken out: read again, and no part of what comes now
    adapter: str = ""  # of whose weights it asks; prompts of different ones share no cache
    whole: bool = False  # a live one whose text may come at its end

    @property
    def can_continue(self) -> bool:
        """Whether it goes on from its tokens where it was taken out: calls are read from the first one on."""
        return self.params.can_continue and (self.request is None or self.request.tools is None)

    @property
    def tokens(self) -> int:
        """That have to be read, as far as none are cached."""
        return len(self.token_ids) + len(self.begun)


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """Rows that are ready for the model, in order; a `Prepared`."""

    prompts: tuple[Prompt, ...]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Prompt tokens of each."""
        return np.array([len(each.token_ids) for each in self.prompts], np.int64)

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """None of them: a prompt that is too long is refused."""
        return np.zeros(len(self.prompts), np.bool_)

    @property
    def signature(self) -> None:
        """Any prompts run together."""

    def slice(self, start: int, stop: int) -> Prompts:
        """Rows `start` to `stop`."""
        return Prompts(self.prompts[start:stop])

    def take(self, order: NDArray[np.int64]) -> Prompts:
        """The rows at those places, in that order."""
        return Prompts(tuple(self.prompts[int(at)] for at in order))


@dataclass(frozen=True, slots=True)
class Emitted:
    """What one step brought for a sequence."""

    key: int
    text: str  # new; held back while it may be the beginning of a stop string
    token_ids: tuple[int, ...]  # new
    finish: FinishReason | None = None  # it has left the runtime
    cached_tokens: int = 0  # of its prompt
    error: Exception | None = None  # it has left the runtime without an answer
    logprobs: tuple[TokenLogprob, ...] = ()  # of the new tokens, where they were asked for
    usage: TokenUsage | None = None  # with the finish: as the runtime has counted it, where that is more exact
    stopped_by: str | None = None  # with the finish: the stop string that it was
    tool_calls: tuple[ToolCallDelta, ...] = ()  # more of them; what they were made of is no part of the text


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the runtime, and how it stands after it."""

    emitted: tuple[Emitted, ...] = ()
    tokens: Mapping[int, int] = field(default_factory=dict[int, int])  # read or generated in it, by sequence
    seconds: float | None = None  # None: it says nothing about what a step takes
    kv_use: float = 0.0  # share of the KV cache
    preempted: int = 0  # sequences that the runtime itself put back for want of KV cache
    begun: Mapping[int, int] = field(
        default_factory=dict[int, int]
    )  # tokens of what has begun and not ended, new since
    more: Sequence[tuple[int, Sequence[int]]] = ()  # further tokens of sequences whose text comes at their end, by key

    @property
    def size(self) -> CallSize:
        """As far as its cost is concerned: rows are sequences."""
        return CallSize.of(self.tokens.values())


class LlmRuntime(Protocol):
    """A language model on one device. One thread owns it; `prepare` and `text_of` alone may be called from any."""

    @property
    def info(self) -> RuntimeInfo: ...

    @property
    def shape(self) -> LlmShape: ...

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        """Template and tokenise; raises InvalidInput, and TooLarge where a prompt leaves no token of the context."""
        ...

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text that these generated tokens are, without special ones."""
        ...

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        """Let it in; live ones go first. Raises InvalidInput where the runtime cannot take it."""
        ...

    def abort(self, keys: Sequence[int]) -> None:
        """Forget them and free what they hold; unknown ones are ignored."""
        ...

    def step(self, prefill_tokens: int | None = None) -> Step:
        """One forward pass over what is inside, or nothing; of each prompt it reads at most so many tokens.

        Raises OutOfMemory or DeviceLost.
        """
        ...

    def close(self) -> None:
        """Give the device back; nothing may be called after it."""
        ...
