"""Anthropic's messages: a conversation to the next turn of it, whole or in events."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from twoshift.endpoints.chat_types import GenerationUsage
from twoshift.endpoints.facts import ModelFacts, Row, requires
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.generating import joined, named_event, usage_of
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.message_types import (
    AnthropicError,
    AnthropicErrorReply,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageDelta,
    MessageEnd,
    MessageReply,
    MessageRequest,
    MessageStart,
    MessageStop,
    MessageUsage,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
)
from twoshift.endpoints.tools import tool_of, tool_use
from twoshift.errors import InvalidInput, Shown
from twoshift.generation import (
    Delta,
    GenerationParams,
    GenerationRequest,
    Message,
    ToolCall,
    ToolCallDelta,
    ToolUse,
)

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
            raise InvalidInput(
                "messages",
                Shown("a last message with the role assistant"),
                "a last message with the role user: this server cannot continue a message of the assistant",
            )
        self._id, self._model = f"msg_{secrets.token_hex(12)}", model.name
        self.streams = bool(asked.stream)
        given = (_conversation(asked), _params(asked), _tools(asked), model.adapter)
        self.rows = [GenerationRequest(*given, whole=not self.streams)]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The whole answer."""
        [row] = rows
        text, calls = str(row["text"]), row["tool_calls"]
        content = [*([TextBlock(text)] if text else []), *map(_called, calls)]
        reply = self._reply(content, _usage(usage_of(rows, tokens, 1)))
        reply.stop_reason, reply.stop_sequence = _ended(row["finish_reason"], row["stopped_by"], bool(calls))
        return _encoder.encode(reply)

    def events(self, prompt_tokens: int) -> MessageEvents:
        """How they are written."""
        return MessageEvents(self._reply([], MessageUsage(prompt_tokens, 0)))

    def _reply(self, content: list[TextBlock | ToolUseBlock], usage: MessageUsage) -> MessageReply:
        return MessageReply(id=self._id, model=self._model, content=content, usage=usage)


class MessageEvents:
    """A message as it is generated: one block after the other."""

    def __init__(self, empty: MessageReply) -> None:
        self._empty = empty
        self._block, self._is_open = -1, False
        self._call: int | None = None  # whose arguments the open block has; None: it has text
        self._has_called = False
        self._end = MessageEnd("end_turn", None)

    def begin(self) -> bytes:
        """The message, with nothing in it."""
        return _event(MessageStart(self._empty))

    def more(self, place: int, delta: Delta) -> bytes:
        """Of the block that is open, or a new one."""
        told = self._text(delta.text) if delta.text else b""
        told += b"".join(self._called(each) for each in delta.tool_calls)
        if delta.finish is not None:
            self._end = MessageEnd(*_ended(delta.finish.value, delta.stopped_by, self._has_called))
        return told

    def end(self, usage: GenerationUsage) -> bytes:
        """Why it has ended, and what it took."""
        return self._closed() + _event(MessageDelta(self._end, _usage(usage))) + _event(MessageStop())

    def fail(self, fault: Fault) -> bytes:
        """What has ended it instead."""
        return b"event: error\ndata: %b\n\n" % told_anthropic(fault)

    def _text(self, text: str) -> bytes:
        begun = b""
        if not self._is_open or self._call is not None:
            begun, self._call = self._opened({"type": "text", "text": ""}), None
        return begun + _event(BlockDelta(self._block, TextDelta(text)))

    def _called(self, call: ToolCallDelta) -> bytes:
        begun, self._has_called = b"", True
        if not self._is_open or self._call != call.index:
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            begun, self._call = self._opened(block), call.index
        return begun + (_event(BlockDelta(self._block, InputDelta(call.arguments))) if call.arguments else b"")

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
    system = [] if asked.system is None else [Message("system", joined(asked.system))]
    return (*system, *(message for place, each in enumerate(asked.messages) for message in _turns(each, place)))


def _turns(turn: Turn, place: int) -> list[Message]:
    """A user's turn has results of calls before what is said; raises InvalidInput for blocks of the other's."""
    blocks = [TextBlock(turn.content)] if isinstance(turn.content, str) else turn.content
    calls = [each for each in blocks if isinstance(each, ToolUseBlock)]
    results = [each for each in blocks if isinstance(each, ToolResultBlock)]
    texts = [each.text for each in blocks if isinstance(each, TextBlock)]
    if (calls and turn.role == "user") or (results and turn.role == "assistant"):
        raise InvalidInput(
            f"messages[{place}].content",
            Shown(f"a {'tool_use' if turn.role == 'user' else 'tool_result'} block with the role {turn.role}"),
            "tool_use blocks only with the role assistant, and tool_result blocks only with the role user",
        )
    told = [Message("tool", joined(each.content or ""), tool_call_id=each.tool_use_id) for each in results]
    if results and not texts:
        return told
    made = tuple(ToolCall(each.id, each.name, _encoder.encode(each.input).decode()) for each in calls)
    return [*told, Message(turn.role, "\n".join(texts), made)]


def _tools(asked: MessageRequest) -> ToolUse | None:
    tools = [tool_of(each.name, each.description, each.input_schema) for each in asked.tools or ()]
    choice = asked.tool_choice
    if choice is None:
        return tool_use(tools, "auto")
    if (choice.name is not None) != (choice.type == "tool"):
        raise InvalidInput(
            "tool_choice.name", choice.name, 'the name of a tool if tool_choice.type is "tool", and no name otherwise'
        )
    wanted = {"any": "required", "none": "none"}.get(choice.type, "auto")
    return tool_use(tools, wanted, choice.name, not choice.disable_parallel_tool_use)


def _called(call: ToolCall) -> ToolUseBlock:
    """Its arguments as they are, where they are an object; a call that was cut off has none."""
    try:
        given = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        given = {}
    return ToolUseBlock(call.id, call.name, given)


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


def _ended(finish: str, stopped_by: str | None, called: bool) -> tuple[StopReason, str | None]:
    if finish == "length":
        return "max_tokens", None
    if called:
        return "tool_use", None
    return ("end_turn", None) if stopped_by is None else ("stop_sequence", stopped_by)


def _usage(usage: GenerationUsage) -> MessageUsage:
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(usage.prompt_tokens - cached, usage.completion_tokens, cached)


def _event(what: msgspec.Struct) -> bytes:
    return named_event(str(what.__struct_config__.tag), what)
