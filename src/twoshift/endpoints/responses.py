"""OpenAI's responses: a conversation to the next turn of it, whole or in events; nothing is stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from twoshift.endpoints.chat_types import GenerationUsage
from twoshift.endpoints.facts import ModelFacts, Row, requires
from twoshift.endpoints.generating import joined, usage_of
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.response_events import ResponseEvents, ended
from twoshift.endpoints.response_types import (
    ChosenFunction,
    FunctionCall,
    InputItem,
    JsonText,
    OutputMessage,
    OutputText,
    ResponseReply,
    ResponseRequest,
    SchemaText,
    Status,
    TextConfig,
)
from twoshift.endpoints.tools import tool_of, tool_use
from twoshift.errors import Inapplicable, InvalidInput, Shown
from twoshift.generation import GenerationParams, GenerationRequest, Message, ToolCall, ToolUse

__all__ = ["RESPONSES", "ResponseCall", "read_response"]

RESPONSES = "/v1/responses"
_requests, _encoder = msgspec.json.Decoder(ResponseRequest), msgspec.json.Encoder()


def read_response(body: bytes | memoryview) -> ResponseRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


class ResponseCall:
    """A conversation with a model; raises InvalidInput where it cannot be asked that."""

    choices = 1

    def __init__(self, asked: ResponseRequest, model: ModelFacts) -> None:
        requires(model, "text", "generating text")
        if asked.store:
            raise InvalidInput("store", Shown("true"), "false: this server does not store answers")
        if asked.background:
            raise InvalidInput("background", Shown("true"), "false: for background work, use /v1/batches")
        if asked.stream_options is not None and not asked.stream:
            raise Inapplicable("stream_options", True, "without `stream: true`")
        self._asked, self._empty = asked, _empty(asked, model.name)
        self.streams = bool(asked.stream)
        given = (_conversation(asked), _params(asked), _tools(asked), model.adapter)
        self.rows = [GenerationRequest(*given, whole=not self.streams)]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The whole answer."""
        [row] = rows
        return _encoder.encode(self._whole(row, usage_of(rows, tokens, 1)))

    def events(self, prompt_tokens: int) -> ResponseEvents:
        """How they are written."""
        return ResponseEvents(self._empty)

    def _whole(self, row: Row, usage: GenerationUsage) -> ResponseReply:
        reply = ended(self._empty, row["finish_reason"], usage)
        text, calls = str(row["text"]), row["tool_calls"]
        if text or not calls:
            content = [OutputText(text=text)]
            reply.output = [OutputMessage(id=_id("msg"), status=reply.status, content=content)]
        reply.output = [*reply.output, *(_called(each, reply.status) for each in calls)]
        return reply


def _conversation(asked: ResponseRequest) -> tuple[Message, ...]:
    told = [] if asked.instructions is None else [Message("system", asked.instructions)]
    if isinstance(asked.input, str):
        return (*told, Message("user", asked.input))
    turns = list[Message](told)
    for place, item in enumerate(asked.input):
        _add(turns, item, f"input[{place}]")
    return tuple(turns)


def _add(turns: list[Message], item: InputItem, at: str) -> None:
    """Calls that follow each other are one turn of the assistant's; raises InvalidInput."""
    match item:
        case InputItem(type="function_call", call_id=str(call), name=str(name), arguments=str(arguments)):
            made = ToolCall(call, name, arguments)
            if turns and turns[-1].role == "assistant":
                turns[-1] = replace(turns[-1], tool_calls=(*turns[-1].tool_calls, made))
            else:
                turns.append(Message("assistant", "", (made,)))
        case InputItem(type="function_call_output", call_id=str(call), output=output) if output is not None:
            turns.append(Message("tool", joined(output), tool_call_id=call))
        case InputItem(type=None | "message", role=str(role), content=content) if content is not None:
            turns.append(Message(role, joined(content)))
        case _:
            accepted = "an item with all fields that its type requires: see /openapi.json"
            raise InvalidInput(at, item.type or "message", accepted)


def _tools(asked: ResponseRequest) -> ToolUse | None:
    tools = [tool_of(each.name, each.description, each.parameters) for each in asked.tools or ()]
    choice, parallel = asked.tool_choice, asked.parallel_tool_calls is not False
    if isinstance(choice, ChosenFunction):
        return tool_use(tools, "auto", choice.name, parallel)
    return tool_use(tools, choice or "auto", parallel=parallel)


def _called(call: ToolCall, status: Status) -> FunctionCall:
    return FunctionCall(id=_id("fc"), call_id=call.id, name=call.name, arguments=call.arguments, status=status)


def _params(asked: ResponseRequest) -> GenerationParams:
    return GenerationParams(
        max_tokens=asked.max_output_tokens,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=asked.top_p or 1.0,
        json_schema=_schema(asked.text),
    )


def _schema(text: TextConfig | None) -> str | None:
    match None if text is None else text.format:
        case JsonText():
            return "{}"
        case SchemaText(schema=schema):
            return _encoder.encode(schema).decode()
        case _:
            return None


def _empty(asked: ResponseRequest, model: str) -> ResponseReply:
    return ResponseReply(
        id=_id("resp"),
        created_at=int(time.time()),
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        metadata=asked.metadata or {},
        model=model,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        text=asked.text or TextConfig(),
        tool_choice=asked.tool_choice or "auto",
        tools=asked.tools or [],
        top_p=asked.top_p or 1.0,
        user=asked.user,
    )


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"
