"""Anthropic's messages as their clients write and read them, live and in batches.

What changes no answer (`metadata`, `cache_control`, `service_tier`) is accepted and not looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from twoshift.endpoints.chat_types import Count
from twoshift.endpoints.tools import MOST_TOOLS, FunctionName

__all__ = [
    "AnthropicError",
    "AnthropicErrorReply",
    "BlockDelta",
    "BlockStart",
    "BlockStop",
    "InputDelta",
    "MessageDelta",
    "MessageEnd",
    "MessageReply",
    "MessageRequest",
    "MessageStart",
    "MessageStop",
    "MessageUsage",
    "PlainText",
    "StopReason",
    "TextBlock",
    "TextDelta",
    "ToolResultBlock",
    "ToolUseBlock",
    "Turn",
]


class CacheControl(Struct, forbid_unknown_fields=True):
    """Cache setting, which is accepted and ignored: prompt prefixes are always cached."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(Struct, tag="text", forbid_unknown_fields=True, omit_defaults=True):
    """A text block of a message."""

    text: str
    cache_control: CacheControl | None = None
    citations: None = None  # as a reply has them that is sent again


class PlainText(Struct, forbid_unknown_fields=True):
    """A text block, the only kind of block allowed here."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: None = None


class DirectCaller(Struct, forbid_unknown_fields=True):
    """The caller of a tool, which is always the model itself."""

    type: Literal["direct"]


class ToolUseBlock(Struct, tag="tool_use", forbid_unknown_fields=True, omit_defaults=True):
    """A tool call that the model requests."""

    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: DirectCaller | None = None  # as a client sends it again


class ToolResultBlock(Struct, tag="tool_result", forbid_unknown_fields=True):
    """The result of a tool call."""

    tool_use_id: str
    content: str | list[PlainText] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class MessageTool(Struct, forbid_unknown_fields=True):
    """A tool that the model may call."""

    name: FunctionName
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None  # a forced call is, always
    cache_control: CacheControl | None = None


class MessageToolChoice(Struct, forbid_unknown_fields=True):
    """Which tool the model must or may call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Turn(Struct, forbid_unknown_fields=True):
    """A message of the conversation."""

    role: Literal["user", "assistant"]
    content: str | list[TextBlock | ToolUseBlock | ToolResultBlock]


class UserOf(Struct, forbid_unknown_fields=True):
    """Metadata of a request: the id of the end user."""

    user_id: str | None = None


class NoThinking(Struct, forbid_unknown_fields=True):
    """Setting that disables thinking; thinking is also disabled without this setting."""

    type: Literal["disabled"]


class SchemaOutput(Struct, forbid_unknown_fields=True):
    """A JSON schema that the answer must match."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Struct, forbid_unknown_fields=True):
    """Format of the answer."""

    format: SchemaOutput | None = None


class MessageRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/messages, and `params` of a request in a message batch."""

    model: str
    max_tokens: Count
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=2048)]
    system: str | list[PlainText] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Count | None = None
    stop_sequences: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)] | None = None
    output_config: OutputConfig | None = None
    tools: Annotated[list[MessageTool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: MessageToolChoice | None = None
    stream: bool | None = None
    metadata: UserOf | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: CacheControl | None = None
    thinking: NoThinking | None = None


class MessageUsage(Struct):
    """Token counts; prompt tokens from the prefix cache are counted separately."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageReply(Struct, kw_only=True):
    """The next message of a conversation."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[TextBlock | ToolUseBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class MessageStart(Struct, tag_field="type", tag="message_start"):
    """The first event: the message, with nothing in it."""

    message: MessageReply


class BlockStart(Struct, tag_field="type", tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: dict[str, Any]


class TextDelta(Struct, tag="text_delta"):
    """More text."""

    text: str


class InputDelta(Struct, tag="input_json_delta"):
    """More of a call's arguments."""

    partial_json: str


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    """More of a block."""

    index: int
    delta: TextDelta | InputDelta


class BlockStop(Struct, tag_field="type", tag="content_block_stop"):
    """A block is whole."""

    index: int


class MessageEnd(Struct):
    """Why it has ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    """The message has ended; what it all took."""

    delta: MessageEnd
    usage: MessageUsage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    """The last event."""


class AnthropicError(Struct):
    """Type and message of an error."""

    type: str
    message: str


class AnthropicErrorReply(Struct, kw_only=True):
    """Error reply in Anthropic's format."""

    type: Literal["error"] = "error"
    error: AnthropicError
