"""Anthropic's messages: a conversation to the next turn of it, whole or in events."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from twoshift.endpoints.chat_types import GenerationUsage
from twoshift.endpoints.facts import ModelFacts, Row, requires
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.generating import named_event, usage_of
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.message_types import (
    AnthropicError,
    AnthropicErrorReply,
    BlockDelta,
    BlockStart,
    BlockStop,
    MessageDelta,
    MessageEnd,
    MessageReply,
    MessageRequest,
    MessageStart,
    MessageStop,
    MessageUsage,
    PlainText,
    StopReason,
    TextBlock,
    TextDelta,
    Turn,
)
from twoshift.errors import InvalidInput
from twoshift.generation import Delta, GenerationParams, GenerationRequest, Message

__all__ = ["MESSAGES", "MessageCall", "read_message", "told_anthropic"]

MESSAGES = "/v1/messages"
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
          429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error"}  # fmt: skip
_requests, _encoder = msgspec.json.Decoder(MessageRequest), msgspec.json.Encoder()


def read_message(body: bytes | memoryview) -> MessageRequest:
    """A request's body, or the params of one in a batch; raises InvalidInput."""
    return asked_of(_requests, body)


class MessageCall:
    """A conversation with a model; raises InvalidInput where it cannot be asked that."""

    choices = 1

    def __init__(self, asked: MessageRequest, model: ModelFacts) -> None:
        requires(model, "text", "generating text")
        if asked.messages[-1].role == "assistant":
            raise InvalidInput("messages", "an assistant's turn at the end", "a user's turn: no turn is continued")
        self._id, self._model = f"msg_{secrets.token_hex(12)}", model.name
        self.streams = bool(asked.stream)
        self.rows = [GenerationRequest(_conversation(asked), _params(asked))]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The whole answer."""
        [row] = rows
        text = str(row["text"])
        reply = self._reply([TextBlock(text)] if text else [], _usage(usage_of(rows, tokens, 1)))
        reply.stop_reason, reply.stop_sequence = _ended(row["finish_reason"], row["stopped_by"])
        return _encoder.encode(reply)

    def events(self, prompt_tokens: int) -> MessageEvents:
        """How they are written."""
        return MessageEvents(self._reply([], MessageUsage(prompt_tokens, 0)))

    def _reply(self, content: list[TextBlock], usage: MessageUsage) -> MessageReply:
        return MessageReply(id=self._id, model=self._model, content=content, usage=usage)


class MessageEvents:
    """A message as it is generated: one block after the other."""

    def __init__(self, empty: MessageReply) -> None:
        self._empty = empty
        self._block, self._is_open = -1, False
        self._end = MessageEnd("end_turn", None)

    def begin(self) -> bytes:
        """The message, with nothing in it."""
        return _event(MessageStart(self._empty))

    def more(self, place: int, delta: Delta) -> bytes:
        """Of the block that is open, or a new one."""
        if delta.finish is not None:
            self._end = MessageEnd(*_ended(delta.finish.value, delta.stopped_by))
        if not delta.text:
            return b""
        begun = b"" if self._is_open else self._opened({"type": "text", "text": ""})
        return begun + _event(BlockDelta(self._block, TextDelta(delta.text)))

    def end(self, usage: GenerationUsage) -> bytes:
        """Why it has ended, and what it took."""
        return self._closed() + _event(MessageDelta(self._end, _usage(usage))) + _event(MessageStop())

    def fail(self, fault: Fault) -> bytes:
        """What has ended it instead."""
        return b"event: error\ndata: %b\n\n" % told_anthropic(fault)

    def _opened(self, block: dict[str, Any]) -> bytes:
        closed = self._closed()
        self._block, self._is_open = self._block + 1, True
        return closed + _event(BlockStart(self._block, block))

    def _closed(self) -> bytes:
        was_open, self._is_open = self._is_open, False
        return _event(BlockStop(self._block)) if was_open else b""


def told_anthropic(fault: Fault) -> bytes:
    """An error as Anthropic's clients read it."""
    kind = _KINDS.get(fault.status, "api_error" if fault.status >= 500 else "invalid_request_error")
    return _encoder.encode(AnthropicErrorReply(error=AnthropicError(kind, fault.message)))


def _conversation(asked: MessageRequest) -> tuple[Message, ...]:
    system = [] if asked.system is None else [Message("system", _joined(asked.system))]
    return (*system, *(_turn(each) for each in asked.messages))


def _turn(turn: Turn) -> Message:
    return Message(turn.role, _joined(turn.content))


def _joined(content: str | Sequence[PlainText]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _params(asked: MessageRequest) -> GenerationParams:
    form = None if asked.output_config is None else asked.output_config.format
    return GenerationParams(
        max_tokens=asked.max_tokens,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=asked.top_p or 1.0,
        top_k=asked.top_k,
        stop=tuple(asked.stop_sequences or ()),
        json_schema=None if form is None else _encoder.encode(form.schema).decode(),
    )


def _ended(finish: str, stopped_by: str | None) -> tuple[StopReason, str | None]:
    if finish == "length":
        return "max_tokens", None
    return ("end_turn", None) if stopped_by is None else ("stop_sequence", stopped_by)


def _usage(usage: GenerationUsage) -> MessageUsage:
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(usage.prompt_tokens - cached, usage.completion_tokens, cached)


def _event(what: msgspec.Struct) -> bytes:
    return named_event(str(what.__struct_config__.tag), what)
