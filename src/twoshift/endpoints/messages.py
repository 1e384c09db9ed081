"""Anthropic's messages, as their batches have them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from twoshift.endpoints.chat import joined
from twoshift.endpoints.chat_types import Count, TextPart
from twoshift.endpoints.facts import ModelFacts, Row, requires
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.json_body import asked_of
from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams, GenerationRequest, Message

__all__ = ["MESSAGES", "MessageCall", "MessageRequest", "read_message", "told_anthropic"]

MESSAGES = "/v1/messages"
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error",
          429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error"}  # fmt: skip


class Turn(Struct, forbid_unknown_fields=True):
    """A turn of the conversation."""

    role: Literal["user", "assistant"]
    content: str | list[TextPart]


class UserOf(Struct, forbid_unknown_fields=True):
    """Whom it is for."""

    user_id: str | None = None


class MessageRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The params of a request in a message batch."""

    model: str
    max_tokens: Count
    messages: Annotated[list[Turn], Meta(min_length=1)]
    system: str | list[TextPart] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Count | None = None
    stop_sequences: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)] | None = None
    metadata: UserOf | None = None
    stream: Annotated[bool, Meta(extra_json_schema={"const": False})] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None


class MessageUsage(Struct):
    """Tokens; those of the prompt that were read from a cache are counted apart."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class MessageReply(Struct, kw_only=True):
    """Generate the next message of a conversation."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[TextPart]
    stop_reason: str
    stop_sequence: None = None
    usage: MessageUsage


class AnthropicError(Struct):
    """What is wrong."""

    type: str
    message: str


class AnthropicErrorReply(Struct, kw_only=True):
    """An error as Anthropic's clients read it."""

    type: Literal["error"] = "error"
    error: AnthropicError


_requests, _encoder = msgspec.json.Decoder(MessageRequest), msgspec.json.Encoder()


def read_message(body: bytes | memoryview) -> MessageRequest:
    """A request's params; raises InvalidInput."""
    return asked_of(_requests, body)


class MessageCall:
    """A conversation with a model; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: MessageRequest, model: ModelFacts) -> None:
        requires(model, "text", "generating text")
        if asked.stream:
            raise InvalidInput("stream", True, "false in a batch")
        self._name = model.name
        system = [] if asked.system is None else [Message("system", joined(asked.system))]
        turns = [Message(each.role, joined(each.content)) for each in asked.messages]
        params = GenerationParams(
            max_tokens=asked.max_tokens,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            top_p=asked.top_p or 1.0,
            top_k=asked.top_k,
            stop=tuple(asked.stop_sequences or ()),
        )
        self.rows = [GenerationRequest((*system, *turns), params)]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The whole answer."""
        row = rows[0]
        cached = int(row["cached_tokens"])
        usage = MessageUsage(tokens - cached, int(row["output_tokens"]), cached)
        content = [TextPart("text", str(row["text"]))]
        reason = _STOP_REASONS[row["finish_reason"]]
        made = f"msg_{secrets.token_hex(12)}"
        return _encoder.encode(
            MessageReply(id=made, model=self._name, content=content, stop_reason=reason, usage=usage)
        )


def told_anthropic(fault: Fault) -> bytes:
    """An error as Anthropic's clients read it."""
    kind = _KINDS.get(fault.status, "api_error" if fault.status >= 500 else "invalid_request_error")
    return _encoder.encode(AnthropicErrorReply(error=AnthropicError(kind, fault.message)))
