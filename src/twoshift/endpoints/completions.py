"""OpenAI's completions: a prompt as it is, text or tokens, to what follows it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from twoshift.endpoints.chat_types import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionReply,
    CompletionRequest,
    GenerationUsage,
)
from twoshift.endpoints.facts import ModelFacts, Row, requires
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.generating import (
    DONE,
    StreamUsage,
    Written,
    asked_rows,
    event,
    failed_event,
    logprobs_of,
    params_of,
    usage_of,
)
from twoshift.endpoints.inputs import texts_or_ids
from twoshift.endpoints.json_body import asked_of
from twoshift.errors import InvalidInput, Shown
from twoshift.generation import Delta, TokenLogprob

__all__ = ["CompletionCall", "read_completion"]

_DEFAULT_TOKENS = 16  # as OpenAI has it
_requests, _encoder = msgspec.json.Decoder(CompletionRequest), msgspec.json.Encoder()


def read_completion(body: bytes | memoryview) -> CompletionRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


class CompletionCall:
    """Prompts to a model; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: CompletionRequest, model: ModelFacts) -> None:
        requires(model, "text", "generating text")
        if asked.echo:
            raise InvalidInput("echo", Shown("true"), "false: this server does not echo prompts")
        self._written, self._asked = Written("cmpl", model.name), asked
        self.choices, self.streams = asked.n or 1, bool(asked.stream)
        params = params_of(asked, asked.max_tokens or _DEFAULT_TOKENS, asked.logprobs)
        given = texts_or_ids(asked.prompt, model.most_rows, "prompt")
        prompts = [each if isinstance(each, str) else tuple(each) for each in given]
        if not prompts:
            raise InvalidInput("prompt", [], "at least one prompt")
        self.rows = asked_rows(prompts, params, self.choices, adapter=model.adapter, whole=not asked.stream)
        self._usage = StreamUsage(asked.stream_options)
        self._offsets = [0] * len(self.rows)  # characters of each that were told

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """What follows each prompt."""
        choices = [
            CompletionChoice(place, str(row["text"]), self._told(logprobs_of(row), place), row["finish_reason"])
            for place, row in enumerate(rows)
        ]
        usage = usage_of(rows, tokens, self.choices)
        return _encoder.encode(CompletionReply(choices=choices, usage=usage, **self._written.head()))

    def events(self, prompt_tokens: int) -> CompletionCall:
        """It writes them itself."""
        self._usage = StreamUsage(self._asked.stream_options, prompt_tokens // self.choices, len(self.rows))
        return self

    def begin(self) -> bytes:
        """Nothing comes before the first text."""
        return b""

    def more(self, place: int, delta: Delta) -> bytes:
        """Of one answer."""
        self._usage.count(place, delta)
        if not (delta.text or delta.logprobs or delta.finish):
            return b""
        finish = None if delta.finish is None else delta.finish.value
        choice = CompletionChoice(place, delta.text, self._told(delta.logprobs, place), finish)
        return event(CompletionReply(choices=[choice], usage=self._usage.now(place), **self._written.head()))

    def end(self, usage: GenerationUsage) -> bytes:
        """What it took, for those who asked."""
        if not self._usage.at_end:
            return DONE
        return event(CompletionReply(choices=[], usage=usage, **self._written.head())) + DONE

    def fail(self, fault: Fault) -> bytes:
        """What has ended it instead."""
        return failed_event(fault)

    def _told(self, tokens: Sequence[TokenLogprob], place: int) -> CompletionLogprobs | None:
        if self._asked.logprobs is None:
            return None
        offsets = list[int]()
        for each in tokens:
            offsets.append(self._offsets[place])
            self._offsets[place] += len(each.text)
        return CompletionLogprobs(
            [each.text for each in tokens],
            [each.logprob for each in tokens],
            [dict(each.likeliest[: self._asked.logprobs]) for each in tokens],
            offsets,
        )
