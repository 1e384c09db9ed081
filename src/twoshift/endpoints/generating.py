"""What every way to ask a language model has in common: its parameters, what it took, and its events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from twoshift.endpoints.chat_types import (
    GeneratingRequest,
    GenerationUsage,
    JsonFormat,
    PromptDetails,
    SchemaFormat,
    StreamOptions,
)
from twoshift.endpoints.facts import EndpointCall, Row
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.openai_errors import told_openai
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import Delta, GenerationParams, GenerationRequest, TokenLogprob, ToolUse

__all__ = [
    "DONE",
    "Events",
    "GenerationCall",
    "StreamUsage",
    "Written",
    "asked_rows",
    "event",
    "failed_event",
    "joined",
    "logprobs_of",
    "named_event",
    "params_of",
    "usage_of",
]

DONE = b"data: [DONE]\n\n"
_MOST_DIGITS = 9  # of a token id
_encoder = msgspec.json.Encoder()


class Events(Protocol):
    """A reply that is written as it is generated, in server-sent events."""

    def begin(self) -> bytes:
        """Before the first text."""
        ...

    def more(self, place: int, delta: Delta) -> bytes:
        """Of the answer to the row at that place."""
        ...

    def end(self, usage: GenerationUsage) -> bytes:
        """After the last text."""
        ...

    def fail(self, fault: Fault) -> bytes:
        """Instead of what was to come."""
        ...


class TextOf(Protocol):
    """A part of a message."""

    @property
    def text(self) -> str: ...


class GenerationCall(EndpointCall, Protocol):
    """A call to a language model."""

    @property
    def rows(self) -> list[GenerationRequest]: ...

    @property
    def choices(self) -> int:
        """Answers to each prompt: as many rows, one after the other, have the same one."""
        ...

    @property
    def streams(self) -> bool:
        """Whether it shall be answered in events."""
        ...

    def events(self, prompt_tokens: int) -> Events:
        """How they are written; the tokens are of the prompts of all rows."""
        ...


class StreamUsage:
    """The usage that each event of a stream tells: of its own answer so far, as vLLM counts it."""

    def __init__(self, options: StreamOptions | None, prompt_tokens: int = 0, rows: int = 0) -> None:
        self.at_end = options is not None and bool(options.include_usage)
        self._always = self.at_end and options is not None and bool(options.continuous_usage_stats)
        self._prompt_tokens, self._written = prompt_tokens, [0] * rows

    def count(self, place: int, delta: Delta) -> None:
        """Its tokens, whether or not there is an event for them."""
        self._written[place] += len(delta.token_ids)

    def now(self, place: int) -> GenerationUsage | msgspec.UnsetType | None:
        """For an event of that answer; None where only the last event tells it."""
        if not self._always:
            return None if self.at_end else msgspec.UNSET
        prompt, written = self._prompt_tokens, self._written[place]
        return GenerationUsage(prompt, written, prompt + written)


class Written:
    """What the replies to one request have in common."""

    def __init__(self, kind: str, model: str) -> None:
        self.id, self.created, self.model = f"{kind}-{secrets.token_hex(12)}", int(time.time()), model

    def head(self) -> dict[str, Any]:
        """The fields of a reply."""
        return {"id": self.id, "created": self.created, "model": self.model}


def params_of(asked: GeneratingRequest, max_tokens: int | None, logprobs: int | None) -> GenerationParams:
    """Raises InvalidInput."""
    if asked.stream_options is not None and not asked.stream:
        raise Inapplicable("stream_options", True, "without `stream: true`")
    given = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "min_p": asked.min_p,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        "repetition_penalty": asked.repetition_penalty,
    }
    return GenerationParams(
        max_tokens=max_tokens,
        may_shorten=False,  # who asks for so many gets them, or an error
        top_k=asked.top_k if asked.top_k is not None and asked.top_k > 0 else None,
        logit_bias=_biases(asked.logit_bias or {}),
        seed=asked.seed,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
        json_schema=_schema(asked),
        logprobs=logprobs,
        ignore_eos=bool(asked.ignore_eos),
        **{name: value for name, value in given.items() if value is not None},
    )


def _biases(given: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """By the number of the token; which numbers there are, the model knows."""
    for token in given:
        if not (token.isascii() and token.isdecimal() and len(token) <= _MOST_DIGITS):
            raise InvalidInput("logit_bias", token, "token ids (whole numbers) as keys")
    return tuple((int(token), bias) for token, bias in given.items())


def _schema(asked: GeneratingRequest) -> str | None:
    match asked.response_format:
        case JsonFormat():
            return "{}"
        case SchemaFormat(json_schema=named):
            return _encoder.encode(named.schema).decode()
        case _:
            return None


def asked_rows(
    prompts: Sequence[Any],
    params: GenerationParams,
    choices: int,
    tools: ToolUse | None = None,
    adapter: str = "",
    whole: bool = False,
) -> list[GenerationRequest]:
    """Each prompt as often as it is to be answered; of one seed each answer has its own, and always the same."""
    each = [params if params.seed is None else replace(params, seed=_seed(params.seed, k)) for k in range(choices)]
    return [GenerationRequest(prompt, those, tools, adapter, whole) for prompt in prompts for those in each]


def _seed(seed: int, place: int) -> int:
    return (seed + place + 2**63) % 2**64 - 2**63


def usage_of(rows: Sequence[Row], tokens: int, choices: int) -> GenerationUsage:
    """Tokens of all rows' prompts were given: of one that has several answers they are counted once."""
    prompt, written = tokens // choices, sum(int(row["output_tokens"]) for row in rows)
    cached = sum(int(row["cached_tokens"]) for row in rows[::choices])
    return GenerationUsage(prompt, written, prompt + written, PromptDetails(cached))


def logprobs_of(row: Row) -> Sequence[TokenLogprob]:
    """Of its tokens; none where nobody has asked."""
    try:
        return row["logprobs"]
    except KeyError:
        return ()


def joined(content: str | Sequence[TextOf]) -> str:
    """A message's text, in one piece."""
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def event(what: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """As it goes over the wire."""
    return b"data: %b\n\n" % _encoder.encode(what)


def named_event(name: str, what: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """The same with its name."""
    return b"event: %b\n%b" % (name.encode(), event(what))


def failed_event(fault: Fault) -> bytes:
    """An error in a stream, as OpenAI's clients read it."""
    return b"data: %b\n\n" % told_openai(fault)
