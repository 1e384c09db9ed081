"""OpenAI's chat completions: a conversation to the next turn of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from twoshift.endpoints.chat_types import (
    CalledFunction,
    CalledPiece,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatReply,
    ChatRequest,
    ChatToken,
    ChatToolCall,
    ChatToolCallDelta,
    Finish,
    GenerationUsage,
    LikelyToken,
    NamedTool,
    ReplyMessage,
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
    joined,
    logprobs_of,
    params_of,
    usage_of,
)
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.tools import tool_of, tool_use
from twoshift.errors import Inapplicable, InvalidInput, Shown
from twoshift.generation import Delta, Message, TokenLogprob, ToolCall, ToolChoice, ToolUse

__all__ = ["ChatCall", "read_chat"]

_requests, _encoder = msgspec.json.Decoder(ChatRequest), msgspec.json.Encoder()


def read_chat(body: bytes | memoryview) -> ChatRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


class ChatCall:
    """A conversation with a model; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: ChatRequest, model: ModelFacts) -> None:
        requires(model, "text", "generating text")
        if asked.store:
            raise InvalidInput("store", Shown("true"), "false: this server does not store answers")
        self._written, self._asked = Written("chatcmpl", model.name), asked
        self.choices, self.streams = asked.n or 1, bool(asked.stream)
        params = params_of(asked, _max_tokens(asked), _logprobs(asked))
        messages = tuple(message_of(each, place) for place, each in enumerate(asked.messages))
        self._tools = _tools(asked)
        self.rows = asked_rows([messages], params, self.choices, self._tools, model.adapter, not asked.stream)
        self._called = set[int]()  # places of answers that call something
        self._usage = StreamUsage(asked.stream_options)

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The whole answers."""
        choices = [self._choice(place, row) for place, row in enumerate(rows)]
        return _encoder.encode(
            ChatReply(choices=choices, usage=usage_of(rows, tokens, self.choices), **self._written.head())
        )

    def events(self, prompt_tokens: int) -> ChatCall:
        """It writes them itself."""
        self._usage = StreamUsage(self._asked.stream_options, prompt_tokens // self.choices, len(self.rows))
        return self

    def begin(self) -> bytes:
        """The role of each answer."""
        first = ChatDelta("assistant", "")
        return b"".join(self._event(ChatChunkChoice(place, first)) for place in range(self.choices))

    def more(self, place: int, delta: Delta) -> bytes:
        """Of one answer; its end is an event of its own."""
        self._usage.count(place, delta)
        found = b""
        if delta.tool_calls:
            self._called.add(place)
        if delta.text or delta.logprobs or delta.tool_calls:
            choice = ChatChunkChoice(place, _delta(delta), self._told(delta.logprobs))
            found = self._event(choice)
        if delta.finish is not None:
            finish = self._finish(delta.finish.value, place in self._called)
            found += self._event(ChatChunkChoice(place, ChatDelta(), finish_reason=finish))
        return found

    def end(self, usage: GenerationUsage) -> bytes:
        """What it took, for those who asked."""
        if not self._usage.at_end:
            return DONE
        return event(ChatChunk(choices=[], usage=usage, **self._written.head())) + DONE

    def fail(self, fault: Fault) -> bytes:
        """What has ended it instead."""
        return failed_event(fault)

    def _choice(self, place: int, row: Row) -> ChatChoice:
        finish = self._finish(row["finish_reason"], bool(row["tool_calls"]))
        return ChatChoice(place, _message(row), self._told(logprobs_of(row)), finish)

    def _finish(self, finish: Finish, called: bool) -> Finish:
        """As OpenAI has it: one that had to call a certain function has stopped, as any other."""
        by_itself = self._tools is not None and self._tools.choice is not ToolChoice.NAMED
        return "tool_calls" if called and by_itself and finish == "stop" else finish

    def _event(self, choice: ChatChunkChoice) -> bytes:
        usage = self._usage.now(choice.index)
        return event(ChatChunk(choices=[choice], usage=usage, **self._written.head()))

    def _told(self, tokens: Iterable[TokenLogprob]) -> ChatLogprobs | None:
        most = self._asked.top_logprobs or 0
        return ChatLogprobs([_token(each, most) for each in tokens]) if self._asked.logprobs else None


def _max_tokens(asked: ChatRequest) -> int | None:
    if asked.max_tokens is not None and asked.max_completion_tokens not in (None, asked.max_tokens):
        raise Inapplicable(
            "max_tokens", asked.max_tokens, "because max_completion_tokens has another value; set only one of the two"
        )
    return asked.max_completion_tokens or asked.max_tokens


def _logprobs(asked: ChatRequest) -> int | None:
    if asked.top_logprobs is not None and not asked.logprobs:
        raise Inapplicable("top_logprobs", asked.top_logprobs, "without `logprobs: true`")
    return (asked.top_logprobs or 0) if asked.logprobs else None


def message_of(given: ChatMessage, place: int) -> Message:
    """A turn; raises InvalidInput where it lacks what its role has."""
    at = f"messages[{place}]"
    if given.tool_calls and given.role != "assistant":
        raise Inapplicable(
            f"{at}.tool_calls", True, f"in a message with the role {given.role}: only the assistant calls tools"
        )
    if given.content is None and not given.tool_calls:
        raise InvalidInput(f"{at}.content", None, "a text, or tool calls in `tool_calls`")
    if (given.tool_call_id is not None) != (given.role == "tool"):
        if given.tool_call_id is None:
            raise InvalidInput(f"{at}.tool_call_id", None, "the id of the tool call that this message answers")
        raise Inapplicable(
            f"{at}.tool_call_id", given.tool_call_id, f"with the role {given.role}, only with the role tool"
        )
    calls = tuple(ToolCall(each.id, each.function.name, each.function.arguments) for each in given.tool_calls or ())
    return Message(given.role, joined(given.content or ""), calls, given.tool_call_id or "")


def _tools(asked: ChatRequest) -> ToolUse | None:
    functions = [each.function for each in asked.tools or ()]
    tools = [tool_of(each.name, each.description, each.parameters) for each in functions]
    choice, parallel = asked.tool_choice, asked.parallel_tool_calls is not False
    if isinstance(choice, NamedTool):
        return tool_use(tools, "auto", choice.function.name, parallel)
    return tool_use(tools, choice or "auto", parallel=parallel)


def _message(row: Row) -> ReplyMessage:
    calls = [ChatToolCall(each.id, CalledFunction(each.name, each.arguments)) for each in row["tool_calls"]]
    text = str(row["text"])
    return ReplyMessage(content=None if calls and not text else text, tool_calls=calls or UNSET)


def _delta(delta: Delta) -> ChatDelta:
    calls = [
        ChatToolCallDelta(
            each.index,
            CalledPiece(each.arguments, each.name or UNSET),
            each.id or UNSET,
            "function" if each.id else UNSET,
        )
        for each in delta.tool_calls
    ]
    return ChatDelta(content=delta.text) if not calls else ChatDelta(UNSET, delta.text or UNSET, calls)


def _token(token: TokenLogprob, most: int) -> ChatToken:
    likeliest = [LikelyToken(text, logprob, [*text.encode()]) for text, logprob in token.likeliest[:most]]
    return ChatToken(token.text, token.logprob, [*token.text.encode()], likeliest)
