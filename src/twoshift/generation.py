"""What is asked of a language model, and what comes back: the words that its runtimes, engine and faces share."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeGuard

from twoshift.errors import InvalidInput

__all__ = [
    "Delta",
    "FinishReason",
    "GenerationParams",
    "GenerationRequest",
    "Message",
    "RowDetails",
    "TokenLogprob",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolUse",
    "is_conversation",
    "joined_calls",
]

_ROLES = ("system", "user", "assistant", "tool", "developer")
_MOST_STOPS = 16
_MOST_LOGPROBS = 20
_MOST_BIASED = 1024


class FinishReason(enum.StrEnum):
    """Why a sequence has ended."""

    STOP = "stop"  # the model's own end, or a stop string
    LENGTH = "length"  # max_tokens, or the end of the context


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """How to generate; the defaults are OpenAI's."""

    max_tokens: int | None = None  # None: what the context leaves
    may_shorten: bool = False  # fewer than max_tokens will do, where the context leaves no more
    temperature: float = 1.0  # 0: always the likeliest token
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0  # tokens below this share of the likeliest one's probability are left out
    logit_bias: tuple[tuple[int, float], ...] = ()  # by token id: added to its logit
    seed: int | None = None
    stop: tuple[str, ...] = ()  # none of them is part of the text
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    json_schema: str | None = None  # the text keeps to this JSON schema; `{}`: any JSON object
    logprobs: int | None = None  # of each token, and of so many that were likelier or as likely; None: of none
    ignore_eos: bool = False  # go on to max_tokens: for measuring

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0.0, 2.0)
        _number("top_p", self.top_p, 0.0, 1.0)
        _require(self.top_p > 0, "top_p", self.top_p, "a number above 0 and up to 1")
        _number("min_p", self.min_p, 0.0, 1.0)
        biased = len(self.logit_bias) <= _MOST_BIASED
        _require(biased, "logit_bias", len(self.logit_bias), f"up to {_MOST_BIASED} tokens")
        for token, bias in self.logit_bias:
            _number(f"logit_bias[{token}]", bias, -100.0, 100.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.01, 10.0)
        _require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _require(self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "at least 1")
        _require(self.seed is None or -(2**63) <= self.seed < 2**63, "seed", self.seed, "a whole number of 64 bits")
        few = self.logprobs is None or 0 <= self.logprobs <= _MOST_LOGPROBS
        _require(few, "logprobs", self.logprobs, f"a number from 0 to {_MOST_LOGPROBS}")
        fits = len(self.stop) <= _MOST_STOPS and all(self.stop)
        _require(fits, "stop", self.stop, f"up to {_MOST_STOPS} texts, none of them empty")

    @property
    def can_continue(self) -> bool:
        """Whether a sequence that was taken out goes on from its tokens; otherwise it begins anew.

        Penalties count what was generated, and a schema is followed from its first token: as a part of the prompt
        the tokens would be neither. The log probabilities of a prompt's tokens are not told.
        """
        penalised = self.presence_penalty or self.frequency_penalty
        return self.json_schema is None and self.logprobs is None and not penalised


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called; the arguments are JSON, as the model wrote them."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the call at that place; the first of a call has its id and its name."""

    index: int
    arguments: str = ""
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that may be called."""

    name: str
    description: str | None
    parameters: str  # a JSON schema


class ToolChoice(enum.StrEnum):
    """Whether the model calls a function."""

    AUTO = "auto"  # as it likes
    NONE = "none"
    REQUIRED = "required"  # at least one
    NAMED = "named"  # the one that is named


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The functions that a model is told of."""

    tools: tuple[Tool, ...]
    choice: ToolChoice = ToolChoice.AUTO
    name: str = ""  # of the one that is to be called
    parallel: bool = True  # several may be called at once

    @property
    def is_forced(self) -> bool:
        """Whether the answer is nothing but calls."""
        return self.choice in (ToolChoice.REQUIRED, ToolChoice.NAMED)

    @property
    def characters(self) -> int:
        """Of all that the model is told."""
        return sum(len(each.name) + len(each.description or "") + len(each.parameters) for each in self.tools)


def joined_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCall, ...]:
    """Calls that came in pieces."""
    found: dict[int, ToolCall] = {}
    for each in deltas:
        known = found.get(each.index, ToolCall("", "", ""))
        found[each.index] = ToolCall(each.id or known.id, each.name or known.name, known.arguments + each.arguments)
    return tuple(found[index] for index in sorted(found))


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()  # of the assistant's
    tool_call_id: str = ""  # the call whose result it is, in the role `tool`

    def __post_init__(self) -> None:
        _require(self.role in _ROLES, "role", self.role, f"one of {', '.join(_ROLES)}")

    @property
    def text(self) -> str:
        """All that is said in it, calls included."""
        called = [f"{each.name}{each.arguments}" for each in self.tool_calls]
        return "\n".join([self.content, *called]) if called else self.content


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A row of a language model: messages, which its chat template joins, or a prompt as it is: text or tokens."""

    prompt: tuple[Message, ...] | str | tuple[int, ...]
    params: GenerationParams = field(default_factory=GenerationParams)
    tools: ToolUse | None = None  # of messages
    adapter: str = ""  # by its name; empty: the model as it is
    whole: bool = False  # nobody reads its answer as it comes


def is_conversation(prompt: tuple[Message, ...] | str | tuple[int, ...]) -> TypeGuard[tuple[Message, ...]]:
    """Whether it is messages; otherwise a text, or tokens."""
    return isinstance(prompt, tuple) and bool(prompt) and isinstance(prompt[0], Message)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What a sequence took."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  # of the prompt: read before, for another one


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was, and which were the likeliest in its place: as many as were asked for, or more."""

    text: str
    logprob: float
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RowDetails:
    """What is told of an answer beside the answer: not the same each time, or not wanted by most."""

    cached_tokens: int = 0  # of its prompt
    logprobs: tuple[TokenLogprob, ...] = ()
    stopped_by: str | None = None  # the stop string that has ended it
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """What has been generated since the last one; the last one has a finish, and what it all took."""

    text: str
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    usage: TokenUsage | None = None
    logprobs: tuple[TokenLogprob, ...] = ()  # of these tokens, where they were asked for
    stopped_by: str | None = None  # with the finish: the stop string that it was
    tool_calls: tuple[ToolCallDelta, ...] = ()  # more of them


def _number(name: str, value: float, least: float, most: float) -> None:
    fits = math.isfinite(value) and least <= value <= most
    _require(fits, name, value, f"a number from {least:g} to {most:g}")


def _require(holds: bool, name: str, value: object, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
